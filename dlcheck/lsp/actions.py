"""What the editor offers for a finding: its fix, all safe fixes of the file, a comment that silences it, its page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lsprotocol import types

from dlcheck import files, suppress
from dlcheck.findings import Finding
from dlcheck.fixing import Fixed, with_line_ends
from dlcheck.lsp import texts
from dlcheck.lsp.converting import Converter, workspace_edit
from dlcheck.notebook import code_cells
from dlcheck.source import split_lines

FIX_ALL = f"{types.CodeActionKind.SourceFixAll.value}.dlcheck"
SHOW_RULE = "dlcheck.showRule"
# Nothing can be done in the text about what does not parse, nor can a comment silence it.
_UNREADABLE = "DLC001"


def at(converter: Converter, uri: str, where: types.Range) -> Iterator[Finding]:
    """The findings of a text or cell that touch a range."""
    for finding in converter.checked.findings:
        if converter.uri_of(finding.place) == uri and texts.overlap(where, converter.range_of(finding.place)):
            yield finding


def quick_fixes(converter: Converter, findings: Sequence[Finding], versioned: bool) -> Iterator[types.CodeAction]:
    """For each finding what mends, silences or explains it."""
    for finding in findings:
        yield from _fix(converter, finding, versioned)
    for finding in findings:
        yield from _ignore(converter, finding, versioned)
    for finding in findings:
        yield types.CodeAction(
            title=f"dlcheck: show {finding.code} ({finding.rule})",
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[converter.diagnostic(finding)],
            command=types.Command(f"Show {finding.code}", SHOW_RULE, arguments=[finding.code]),
        )


def _fix(converter: Converter, finding: Finding, versioned: bool) -> Iterator[types.CodeAction]:
    source = converter.checked.source
    if finding.fix is None or source is None:
        return
    edits = with_line_ends(source, finding.fix.edits)
    edit = converter.workspace_edit(edits, versioned)
    if edit is None:
        return
    unsafe = "" if finding.fix.applicability == "safe" else " (unsafe: may change results)"
    yield types.CodeAction(
        title=f"dlcheck: {finding.fix.message}{unsafe}",
        kind=types.CodeActionKind.QuickFix,
        diagnostics=[converter.diagnostic(finding)],
        edit=edit,
        is_preferred=not unsafe,
    )


def _ignore(converter: Converter, finding: Finding, versioned: bool) -> Iterator[types.CodeAction]:
    source = converter.checked.source
    if finding.code == _UNREADABLE or finding.code == suppress.CODE or source is None or not converter.checked.whole:
        return
    edit = suppress.silencing(finding, source)
    if edit is None:
        return
    made = converter.workspace_edit([edit], versioned)
    if made is not None:
        yield types.CodeAction(
            title=f"dlcheck: ignore {finding.code} here",
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[converter.diagnostic(finding)],
            edit=made,
        )


def fix_all(converter: Converter, fixed: Fixed, versioned: bool) -> types.CodeAction | None:
    """All safe fixes of the file as one action; None where there are none."""
    change = next((one for one in fixed.changes if one.file == converter.document.file), None)
    if change is None:
        return None
    old = files.to_source(change.file, change.before)
    new = files.to_source(change.file, change.after)
    by_uri: dict[str, list[types.TextEdit]] = {}
    document = converter.document
    if document.cells is None:
        by_uri[document.uri] = differences(old.text, new.text, converter)
    else:
        codes = [cell for cell in document.cells if cell.is_code]
        for cell, before, after in zip(codes, code_cells(old.document), code_cells(new.document), strict=True):
            if before != after:
                by_uri[cell.uri] = differences(before, after, converter)
    return types.CodeAction(
        title=f"dlcheck: apply all safe fixes ({fixed.number()})",
        kind=FIX_ALL,
        edit=workspace_edit(by_uri, converter.documents, versioned),
    )


def differences(before: str, after: str, converter: Converter) -> list[types.TextEdit]:
    """The lines that differ, as edits of the first text."""
    import difflib

    old, new = split_lines(before), split_lines(after)
    starts = [0]
    for line in old:
        starts.append(starts[-1] + len(line))
    edits = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            where = texts.span(before, starts[a], starts[b], converter.encoding)
            edits.append(types.TextEdit(where, "".join(new[c:d])))
    return edits
