"""Applying fixes: round after round until nothing changes, each result parsed before the next, files written whole.

Two fixes that touch the same statement are applied in two rounds, the second as it is found in what
the first has left.  A fix is applied with all its edits or not at all.

What changes options of loaders goes first, one rule in a round: other fixes rest on options wherever they are
written, as a sum that is divided by the samples of full batches does on ``drop_last=True``.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
import tempfile
import warnings
from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from dlcheck import edits, files
from dlcheck.findings import Edit, Finding, ReportError
from dlcheck.source import Source, split_lines

if TYPE_CHECKING:
    from dlcheck.engine import Report

MAX_ROUNDS = 40
_LINE_END = re.compile(r"(?<!\r)\n")

# What checking finds when the given files hold the given bytes.
Check = Callable[[Mapping[str, bytes]], "Report"]


@dataclass(frozen=True)
class Change:
    """A file before and after; ``file`` is absolute, ``path`` is what people are told."""

    file: str
    path: str
    before: bytes
    after: bytes

    def diff(self) -> str:
        """A unified diff; of a notebook one for each cell that changes, with its magics as they stand there."""
        old, new = (files.to_source(self.file, data, self.path) for data in (self.before, self.after))
        if not old.cells:
            return _diff(self.path, old.text, new.text)
        return "".join(
            _diff(f"{self.path}:cell {number}", before, after)
            for number, (before, after) in enumerate(zip(old.cell_texts, new.cell_texts, strict=True), 1)
        )

    def write(self) -> str:
        """Put the new bytes in the place of the old ones, at once or not at all; why not, else nothing.

        A file of several names (hard links) is written in place, so that all of them show the new text.
        """
        file = os.path.realpath(self.file)
        if not _is_of_the_project(self.file, file):
            return f"a link out of its project, to {file}: left as it is; name that file to change it"
        try:
            found = files.read(file)
            if found != self.before:
                return f"{self._why_others(found)}: left as it is"
            status = os.stat(file)
            mode = status.st_mode
            if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(file, os.W_OK):
                return "read-only: left as it is"
            if status.st_nlink > 1:
                _overwrite(file, self.before, self.after)
            else:
                _replace(file, self.after, mode)
        except files.UnusableError as error:
            return f"cannot be read again: {error.message}"
        except OSError as error:
            return f"cannot be written: {error.strerror or error}"
        return ""

    def _why_others(self, found: bytes) -> str:
        """Why the bytes of the file are not those that its text makes."""
        with suppress(files.UnusableError):
            if files.decode(found)[0] == files.decode(self.before)[0]:
                return "its encoding has several ways to write its text"
        return "changed meanwhile"


def _is_of_the_project(name: str, real: str) -> bool:
    """Whether a file lies where its name says, in the same project at least: a link may lead to anybody's files."""
    folder = os.path.dirname(os.path.abspath(name))
    here = os.path.realpath(folder)
    return os.path.dirname(real) == here or files.within(os.path.realpath(files.root_of(folder) or folder), real)


class Applied(NamedTuple):
    """A fix: its rule, and the files that it changed."""

    code: str
    files: frozenset[str]


@dataclass
class Fixed:
    """What became of a run: ``report`` is of the files as they would be."""

    report: Report
    changes: list[Change] = field(default_factory=list)
    fixes: list[Applied] = field(default_factory=list)
    errors: list[ReportError] = field(default_factory=list)

    @property
    def applied(self) -> Counter[str]:
        """How many fixes of each rule."""
        return Counter(fix.code for fix in self.fixes)

    def number(self, but: Collection[str] = ()) -> int:
        """How many fixes, without those in files that could not be written."""
        return sum(not fix.files & set(but) for fix in self.fixes)


def fix(check: Check, *, unsafe: bool) -> Fixed:
    """Apply the fixes of what ``check`` finds, unsafe ones where asked for; nothing is written."""
    run = _Run(unsafe)
    report = check({})
    for _ in range(MAX_ROUNDS):
        if not run.round(report):
            break
        report = check(run.after)
    else:
        left = next((one.place for one in report.findings if run.eligible(one)), None)
        if left is not None:
            told = f"fixes still change each other after {MAX_ROUNDS} rounds: look at what they did"
            run.errors.append(ReportError(left.path, left.line, told))
    report.findings = [run.told(_told(finding, report)) for finding in report.findings]
    changes = [
        Change(file, path, run.before[file], run.after[file])
        for file, path in sorted(run.paths.items(), key=lambda names: names[1])
        if run.after[file] != run.before[file]
    ]
    return Fixed(report, changes, run.applied, run.errors)


def _real(report: Report) -> dict[str, list[str]]:
    """The checked files by what they really are: a file and the links to it are changed once."""
    found: dict[Hashable, list[str]] = {}
    for file in sorted(report.readable):
        found.setdefault(_identity(file), []).append(file)
    return {
        next((name for name in names if os.path.realpath(name) == name), names[0]): names for names in found.values()
    }


def _identity(file: str) -> Hashable:
    """What is the same for all names of a file."""
    try:
        status = os.stat(file)
    except OSError:  # it is given as text, and lies nowhere
        return os.path.realpath(file)
    return (status.st_dev, status.st_ino) if status.st_nlink > 1 else os.path.realpath(file)


def _told(finding: Finding, report: Report) -> Finding:
    """A finding that stays; it says so where its fix is in a file that nobody named."""
    checked = {path for path, source in report.sources.items() if source.file in report.readable}
    elsewhere = sorted({edit.place.path for edit in finding.fix.edits} - checked) if finding.fix else []
    if not elsewhere:
        return finding
    return replace(finding, fix=None, unfixed=f"that would change {', '.join(elsewhere)}, which was not named")


class _Run:
    """The files as they are by now, and what was done to them."""

    def __init__(self, unsafe: bool) -> None:
        self.unsafe = unsafe
        self.before: dict[str, bytes] = {}
        self.after: dict[str, bytes] = {}
        self.paths: dict[str, str] = {}
        self.applied: list[Applied] = []
        self.errors: list[ReportError] = []
        self._refused: dict[tuple[str, tuple[Edit, ...]], str] = {}  # with the reason, where it is the notebook's

    def eligible(self, finding: Finding) -> bool:
        fix = finding.fix
        if fix is None or (finding.code, fix.edits) in self._refused:
            return False
        return self.unsafe or fix.applicability == "safe"

    def round(self, report: Report) -> bool:
        """Apply what can be applied at once; whether another round may find more."""
        refused = len(self._refused)
        real = _real(report)
        sources = {path: source for path, source in report.sources.items() if source.file in real}
        wanted = list(filter(self.eligible, report.findings))
        chosen = next((group for group in (list(compatible(one, sources)) for one in _groups(wanted)) if group), [])
        written = rewritten(sources, chosen)
        if written is None:
            chosen, written = self._one_by_one(sources, chosen)
        for path, data in written.items():
            source = sources[path]
            self.before.setdefault(source.file, source.data)
            self.paths.setdefault(source.file, path)
            self.after.update(dict.fromkeys(real[source.file], data))
        self.applied += [Applied(finding.code, _files_of(finding, sources)) for finding in chosen]
        return bool(chosen) or len(self._refused) > refused

    def _one_by_one(
        self, sources: Mapping[str, Source], wanted: Iterable[Finding]
    ) -> tuple[list[Finding], dict[str, bytes]]:
        """Those that leave their files whole, and the files: one of several does not, and none is to suffer for it."""
        chosen: list[Finding] = []
        written: dict[str, bytes] = {}
        for finding in wanted:
            found = rewritten(sources, [*chosen, finding])
            if found is None:
                self._refuse(finding, sources)
            else:
                chosen.append(finding)
                written = found
        return chosen, written

    def told(self, finding: Finding) -> Finding:
        """A finding that stays; it says so where its fix would change what is no Python."""
        why = self._refused.get((finding.code, finding.fix.edits)) if finding.fix is not None else None
        return replace(finding, fix=None, unfixed=f"that would change {why}") if why else finding

    def _refuse(self, finding: Finding, sources: Mapping[str, Source]) -> None:
        assert finding.fix is not None
        why = _no_python(sources, finding.fix.edits)
        self._refused[finding.code, finding.fix.edits] = why
        if why:
            return
        at = finding.place
        told = f"the fix of {finding.code} would break the file: it is not applied; please report this"
        self.errors.append(ReportError(at.path, at.line, told))


def _groups(findings: Sequence[Finding]) -> Iterator[list[Finding]]:
    """What may be applied in one round, first choice first: what one rule does to options; what leaves them."""
    altering = {finding.code for finding in findings if finding.fix and finding.fix.alters}
    for code in sorted(altering):
        yield [finding for finding in findings if finding.code == code]
    yield [finding for finding in findings if finding.fix and not finding.fix.alters]


def compatible(findings: Iterable[Finding], sources: Mapping[str, Source]) -> Iterator[Finding]:
    """Those whose fixes can be applied in one round: in files that are checked, no two rules in one statement."""
    taken: dict[tuple[str, int | None, int], str] = {}  # the rule, by the line that it changes
    chosen: dict[str, list[Edit]] = {}
    for finding in findings:
        assert finding.fix is not None
        wanted = finding.fix.edits
        lines = {(edit.place.path, edit.place.cell, line) for edit in wanted for line in _lines(edit)}
        first, last = finding.statement_lines
        lines |= {(finding.place.path, finding.place.cell, line) for line in range(first, last + 1)}
        if any(edit.place.path not in sources for edit in wanted):
            continue
        if any(taken.get(line, finding.code) != finding.code for line in lines):
            continue
        together = {edit.place.path: [*chosen.get(edit.place.path, []), *wanted] for edit in wanted}
        if not all(_disjoint(sources[path], group) for path, group in together.items()):
            continue
        chosen.update(together)
        taken.update(dict.fromkeys(lines, finding.code))
        yield finding


def _files_of(finding: Finding, sources: Mapping[str, Source]) -> frozenset[str]:
    return frozenset(sources[edit.place.path].file for edit in finding.fix.edits) if finding.fix else frozenset()


def _lines(edit: Edit) -> range:
    return range(edit.place.line, edit.place.end_line + 1)


def _disjoint(source: Source, group: Iterable[Edit]) -> bool:
    try:
        edits.apply(source, group)
    except ValueError:
        return False
    return True


def rewritten(sources: Mapping[str, Source], findings: Iterable[Finding]) -> dict[str, bytes] | None:
    """The files that the fixes of findings change, by path; None where one of them would be no Python any more."""
    changed: dict[str, list[Edit]] = {}
    for finding in findings:
        for edit in finding.fix.edits if finding.fix else ():
            changed.setdefault(edit.place.path, []).append(edit)
    out: dict[str, bytes] = {}
    for path, wanted in changed.items():
        data = _applied(sources[path], wanted)
        if data is None:
            return None
        out[path] = data
    return out


def _applied(source: Source, wanted: Iterable[Edit]) -> bytes | None:
    """The bytes of a file after edits; None where the file does not bear them."""
    own = with_line_ends(source, wanted)
    try:
        if source.cells:
            data = source.encoded(_edited_notebook(source, own))
        else:
            data = source.encoded(edits.apply(source, own))
        after = files.to_source(source.file, data, source.path)
    except (ValueError, files.UnusableError):
        return None
    return data if _is_as_good(source, after) else None


def with_line_ends(source: Source, wanted: Iterable[Edit]) -> list[Edit]:
    """Edits whose lines end as those of the file do."""
    end = "\r\n" if source.text.count("\r\n") * 2 > source.text.count("\n") else "\n"
    return [replace(edit, replacement=_LINE_END.sub(end, edit.replacement)) for edit in wanted]


def _edited_notebook(source: Source, wanted: Iterable[Edit]) -> str:
    """The JSON of a notebook after edits of its cells; all around their code stays as it is, byte for byte.

    Raises ValueError where an edit touches a line that is no Python, such as a magic.
    """
    from dlcheck import notebook, notebook_json

    by_cell: dict[int, list[Edit]] = {}
    for edit in wanted:
        assert edit.place.cell is not None
        by_cell.setdefault(edit.place.cell, []).append(edit)
    codes = notebook.code_cells(source.document)
    changed = {}
    for number, own in by_cell.items():
        _refuse_magics(source, codes[number - 1], own)
        code = codes[number - 1]
        # The last line of a cell has no end, which an edit of whole lines takes it to have.
        ended = code.endswith(("\n", "\r"))
        cell = Source(source.path, source.file, code if ended else f"{code}\n")
        here = [replace(edit, place=replace(edit.place, cell=None)) for edit in own]
        after = edits.apply(cell, here)
        changed[number - 1] = after if ended else after.removesuffix("\n")
    return notebook_json.with_codes(source.document, changed)


def _no_python(sources: Mapping[str, Source], wanted: Iterable[Edit]) -> str:
    """The line of a cell that is no Python and that edits would change, in words; empty where there is none."""
    from dlcheck import notebook

    for edit in wanted:
        source = sources[edit.place.path]
        if source.cells and edit.place.cell is not None:
            try:
                _refuse_magics(source, notebook.code_cells(source.document)[edit.place.cell - 1], [edit])
            except ValueError as error:
                return str(error)
    return ""


def _refuse_magics(source: Source, code: str, wanted: Iterable[Edit]) -> None:
    """Lines with magics were read as something else: places in them are not those of the cell's text."""
    cell = Source(source.path, source.file, code)
    for edit in wanted:
        above = next(one.first_line for one in source.cells if one.number == edit.place.cell)
        # Whole lines end where the next one begins, which may be that of another cell.
        last = edit.place.end_line - (edit.place.end_column == 1 and edit.place.end_line > edit.place.line)
        for line in range(edit.place.line, last + 1):
            # Behind the last line is an empty one, with or without an end of the line before.
            known = cell.line(line) if line <= len(cell.starts) else ""
            if known != source.line(line + above):
                raise ValueError(f"line {line} of cell {edit.place.cell}, which is no Python")


def _is_as_good(before: Source, after: Source) -> bool:
    """Whether a text parses, and compiles where the old one did: no call may name an argument twice."""
    from dlcheck.facts import Unreadable, extract

    try:
        extract(after)
    except Unreadable:
        return False
    return _compiles(after) or not _compiles(before)


def _compiles(source: Source) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source.text, "<file>", "exec", PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _diff(path: str, before: str, after: str) -> str:
    found = difflib.unified_diff(split_lines(before), split_lines(after), _quoted(f"a/{path}"), _quoted(f"b/{path}"))
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in found)


def _quoted(path: str) -> str:
    """A name as git writes it into a diff: with a line end in it, it would be lines of the diff itself."""
    if path.isprintable() and not set(path) & {'"', "\\"}:
        return path
    return '"' + "".join(_octal(byte) for byte in os.fsencode(path)) + '"'


def _octal(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}"


def _overwrite(file: str, before: bytes, after: bytes) -> None:
    """Write into the file itself; where that fails, its old bytes come back.

    Who reads it meanwhile, or a machine that stops, may see a part of the new text.
    """
    handle = os.open(file, os.O_WRONLY | getattr(os, "O_BINARY", 0))
    try:
        try:
            _put(handle, after)
        except BaseException:
            _put(handle, before)
            raise
    finally:
        os.close(handle)


def _put(handle: int, data: bytes) -> None:
    os.lseek(handle, 0, os.SEEK_SET)
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]
    os.ftruncate(handle, len(data))
    os.fsync(handle)


def _replace(file: str, data: bytes, mode: int) -> None:
    """Write beside the file and rename: who reads it meanwhile sees the old text or the new one."""
    handle, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(file)}.", dir=os.path.dirname(file))
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        owner = os.stat(file)
        os.chmod(temporary, stat.S_IMODE(mode))
        if hasattr(os, "chown"):
            with suppress(OSError):  # another's file that we may write: it becomes ours
                os.chown(temporary, owner.st_uid, owner.st_gid)
        os.replace(temporary, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
