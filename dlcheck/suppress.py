"""Comments that silence findings, and which of them silence nothing.

``# dlcheck: ignore[DLC101, name] why`` on any line of a statement, or alone above it;
``# dlcheck: file-ignore[...]`` anywhere; ``# noqa: DLC101`` on any line of a statement.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dlcheck.config import suggestion
from dlcheck.findings import Edit, Finding
from dlcheck.pages import Page, words
from dlcheck.source import Source

CODE = "DLC002"

_OURS = re.compile(r"#\s*dlcheck:(?P<rest>[^#]*)")
_FORM = re.compile(r"\s*(?P<kind>ignore|file-ignore)\[(?P<codes>[^\]]*)\]")
_NOQA = re.compile(r"#\s*noqa\s*:\s*(?P<codes>[A-Z][A-Z0-9]*(?:[,\s]+[A-Z]+[0-9]+)*)", re.IGNORECASE)
_NOQA_OURS = re.compile(r"\bDLC\d+\b", re.IGNORECASE)
_WORD = re.compile(r"[^\s,](?:[^,]*[^\s,])?")
# Where the text does not tokenize, what looks like a comment is taken for one.
_ANY_COMMENT = re.compile(r"#[^\r\n]*")


class Comment(NamedTuple):
    start: int  # offset in the text
    text: str


class Named(NamedTuple):
    """A rule named in a comment: as written, and the code that it stands for."""

    word: str
    code: str | None


@dataclass(slots=True)
class Marker:
    """One suppression comment: lines and offsets are those of ``Source.text``."""

    kind: str  # ignore | file-ignore | noqa
    line: int
    alone: bool
    start: int
    end: int
    named: tuple[Named, ...]
    problem: str = ""
    used: set[str] = field(default_factory=set)

    def silences(self, code: str) -> bool:
        if not any(named.code == code for named in self.named):
            return False
        self.used.add(code)
        return True


def may_silence(source: Source) -> bool:
    """Whether a file may hold such a comment."""
    return "dlcheck:" in source.text or ("noqa" in source.text.lower() and bool(_NOQA_OURS.search(source.text)))


def markers(source: Source, pages: Mapping[str, Page]) -> list[Marker]:
    """The suppression comments of a file, those with a fault included."""
    if not may_silence(source):
        return []
    codes = {**{code: code for code in pages}, **{page.name: code for code, page in pages.items()}}
    return [marker for comment in comments(source.text) for marker in _parse(comment, source, codes)]


def comments(text: str) -> list[Comment]:
    """The comments of a module, in order."""
    # One character for another: a lone carriage return ends a line for Python's parser, but not for every tokenizer.
    lines = re.sub(r"\r(?!\n)", "\n", text)
    starts = [0, *(found.end() for found in re.finditer("\n", lines))]
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(lines, newline="\n").readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return [Comment(found.start(), found[0]) for found in _ANY_COMMENT.finditer(text)]
    return [
        Comment(starts[token.start[0] - 1] + token.start[1], token.string.rstrip("\r"))
        for token in tokens
        if token.type == tokenize.COMMENT
    ]


def _parse(comment: Comment, source: Source, codes: Mapping[str, str]) -> Iterator[Marker]:
    line, column = source.position(comment.start)
    alone = not source.line(line)[: column - 1].strip()
    for found in _OURS.finditer(comment.text):
        start = comment.start + found.start()
        end = start + len(found[0].rstrip())
        form = _FORM.match(found["rest"])
        if form is None:
            yield Marker("ignore", line, alone, start, end, (), _fault(found["rest"]))
            continue
        named = tuple(Named(word, codes.get(word)) for word in _WORD.findall(form["codes"]))
        problem = next((_unknown(name.word, codes) for name in named if name.code is None), "")
        yield Marker(form["kind"], line, alone, start, end, named, problem or ("" if named else "it names no rule"))
    noqa = _NOQA.search(comment.text)
    if noqa is not None:
        ours = tuple(Named(word, codes.get(word.upper())) for word in _NOQA_OURS.findall(noqa["codes"]))
        if ours:
            problem = next((_unknown(name.word, codes) for name in ours if name.code is None), "")
            start = comment.start + noqa.start()
            yield Marker("noqa", line, alone, start, start + len(noqa[0]), ours, problem)


def _fault(rest: str) -> str:
    word = re.match(r"\s*([\w-]*)", rest)
    verb = word[1] if word is not None else ""
    if verb in ("ignore", "file-ignore"):
        codes = ", ".join(re.findall(r"\b[A-Z]{3}[0-9]{3}\b", rest))
        fault = "brackets are missing" if codes else "it names no rule"
        return f"{fault}: write `# dlcheck: {verb}[{codes or 'DLC101'}]`"
    return f"`{verb}` is neither `ignore[...]` nor `file-ignore[...]`{suggestion(verb, ('ignore', 'file-ignore'))}"


def _unknown(word: str, codes: Mapping[str, str]) -> str:
    return f"there is no rule `{word}`{suggestion(word, codes)}"


def silence(findings: Iterable[Finding], source: Source, found: Collection[Marker]) -> list[Finding]:
    """The findings of one file that no comment silences; notes in the markers which ones served."""
    if not found:
        return list(findings)
    whole = [marker for marker in found if marker.kind == "file-ignore"]
    inline: dict[int, list[Marker]] = {}
    for marker in found:
        if marker.kind != "file-ignore":
            inline.setdefault(marker.line, []).append(marker)
    return [finding for finding in findings if not _silenced(finding, source, whole, inline)]


def _silenced(finding: Finding, source: Source, whole: list[Marker], inline: Mapping[int, list[Marker]]) -> bool:
    first, last = _lines(finding, source)
    near = [marker for line in range(first, last + 1) for marker in inline.get(line, ())]
    above = first - 1
    while above >= 1 and source.line(above).lstrip().startswith("#"):
        near += [marker for marker in inline.get(above, ()) if marker.kind == "ignore" and marker.alone]
        above -= 1
    serving = [marker for marker in (*near, *whole) if marker.silences(finding.code)]
    return bool(serving)


def _lines(finding: Finding, source: Source) -> tuple[int, int]:
    """First and last line of a finding's statement, in the lines of ``Source.text``."""
    place = finding.place
    first, last = finding.statement_lines
    if first == 0:
        first, last = place.line, place.end_line
    above = next((cell.first_line for cell in source.cells if cell.number == place.cell), 0)
    return min(first, place.line) + above, max(last, place.line) + above


def silencing(finding: Finding, source: Source) -> Edit | None:
    """The edit that writes a comment which silences a finding; None where no line of its statement can take one."""
    first, last = _lines(finding, source)
    for line in range(last, first - 1, -1):
        edit = _added(source, line, finding.code)
        if edit is not None:
            return edit
    return None


def _added(source: Source, line: int, code: str) -> Edit | None:
    text = source.line(line)
    start = source.offset(line, 1)
    ours = [comment for comment in comments(source.text) if start <= comment.start <= start + len(text)]
    for comment in ours:
        form = re.search(r"#\s*dlcheck:\s*ignore\[[^\]#]*", comment.text)
        if form is not None:
            at = comment.start + form.end()
            return Edit(source.place(at, at), code if form[0].endswith("[") else f", {code}")
    at = start + len(text)
    new = f"  # dlcheck: ignore[{code}]"
    changed = source.text[:at] + new + source.text[at:]
    where = {at + 2} | {comment.start for comment in ours}
    seen = any(comment.start in where and comment.text.endswith(new.lstrip()) for comment in comments(changed))
    return Edit(source.place(at, at), new) if text.strip() and not text.endswith("\\") and seen else None


def unused(source: Source, found: Iterable[Marker], enabled: Collection[str], page: Page) -> list[Finding]:
    """A finding for each comment that is malformed, or that names rules which find nothing there.

    Rules that are not ``enabled`` did not run: of these nothing is known.
    """
    told = []
    for marker in found:
        if any(named.code == CODE for named in marker.named):
            continue
        idle = [named for named in marker.named if named.code in enabled and named.code not in marker.used]
        if marker.problem or idle:
            told.append(_finding(source, marker, idle, page))
    return told


def _finding(source: Source, marker: Marker, idle: list[Named], page: Page) -> Finding:
    said = page.variant("malformed" if marker.problem else "")
    text = source.text[marker.start : marker.end]
    listed = " or ".join(named.word for named in idle)
    message, help_ = words(page, said.name, comment=text, code=listed, reason=marker.problem)
    return Finding(
        code=page.code,
        rule=page.name,
        severity=said.severity or page.severity,
        confidence=said.confidence or page.confidence,
        place=source.place(marker.start, marker.end),
        message=message,
        help=help_,
        statement=text,
    )
