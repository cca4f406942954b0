"""A run: named files -> facts -> project -> findings, less what comments and configuration silence."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dlcheck import files, pages, suppress
from dlcheck.config import Config, ConfigError, common_folder
from dlcheck.files import Named, UnusableError
from dlcheck.files.finder import Finder
from dlcheck.files.workspace import Workspace
from dlcheck.findings import CONFIDENCES, Finding, Place, ReportError, with_fingerprints
from dlcheck.source import LeftOut, Source

if TYPE_CHECKING:
    from dlcheck.baseline import Entry
    from dlcheck.cache import Cache, Outcome
    from dlcheck.facts.forms import ModuleFacts
    from dlcheck.gitignore import Patterns
    from dlcheck.model import Project
    from dlcheck.pages import Page
    from dlcheck.warm import Warm

MAX_DIFFERING = 20  # files that libcst and CPython's parser do not read alike, each of which begins a run anew
UNREADABLE = "DLC001"
UNUSED = "DLC002"

_TEST_FILE = re.compile(r"test_.*\.pyw?|.*_test\.pyw?|conftest\.py")


@dataclass
class Report:
    """What a run found.

    ``sources`` are by the path that places name; ``checked`` are the files, absolute, whose silence means
    something, ``partly`` the notebooks of which cells were left out; ``known`` are findings that a baseline
    holds, ``stale`` what it holds in vain; ``refuted`` are findings that were left out because this machine
    refuted them; ``fixed`` counts the fixes that were applied, where any were to be; ``warnings`` are lines
    about what was passed over; ``read`` are the files, absolute, that were read as texts; ``surveyed`` is what
    the run's ``survey`` has seen.
    """

    findings: list[Finding]
    errors: list[ReportError]
    files: int
    sources: dict[str, Source]
    checked: frozenset[str] = frozenset()
    known: list[Finding] = field(default_factory=list)
    stale: list[Entry] = field(default_factory=list)
    refuted: list[Finding] = field(default_factory=list)
    fixed: int | None = None
    warnings: list[str] = field(default_factory=list)
    partly: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    surveyed: list[Any] = field(default_factory=list)

    @property
    def unread(self) -> list[Finding]:
        """What could not be read, of which nothing else is said."""
        return [finding for finding in self.findings if finding.code == UNREADABLE]

    @property
    def readable(self) -> frozenset[str]:
        """The files that a fix may change."""
        return self.checked | self.partly


def discover(paths: Sequence[str], config: Config) -> list[Named]:
    """The files that paths stand for, under the configuration of each folder."""
    return Finder(_exclude(config)).named(paths, force_exclude=_force_exclude(config))


def _exclude(config: Config) -> Callable[[str], Patterns]:
    def patterns(folder: str) -> Patterns:
        try:
            return config.for_folder(folder).exclude
        except ConfigError:
            # Told when a file of that folder is checked; a search for callers only passes through.
            return config.exclude

    return patterns


def _force_exclude(config: Config) -> Callable[[str], bool]:
    def excluded(file: str) -> bool:
        here = config.for_folder(os.path.dirname(file))
        return here.force_exclude and here.excludes(file)

    return excluded


def check(
    paths: Sequence[str],
    config: Config,
    *,
    stdin: tuple[str, bytes] | None = None,
    overlays: Mapping[str, bytes] | None = None,
    with_subjects: bool = False,
    warm: Warm | None = None,
    cached: bool = False,
    survey: Callable[[Project], Iterable[Any]] | None = None,
) -> Report:
    """Check the files that ``paths`` stand for.

    ``stdin`` is a path and the text to take for its content; ``-`` among the paths stands for it.
    ``overlays`` are texts to take for the content of files, which are named absolutely.
    ``with_subjects``: findings say in ``measure`` which loader they are about.
    ``warm`` is what earlier runs of this process have left for this one; with ``cached``, what earlier ones
    have left on disk is used, and this one leaves what it found, unless texts are not those of the files.
    ``survey`` is shown each project, and what it says of it, plain data, is in the report.
    Raises ConfigError where a configuration file of a checked folder is wrong.
    """
    on_disk = cached and not overlays and stdin is None and not with_subjects and warm is None and survey is None
    return _Run(config, stdin, overlays or {}, with_subjects, warm, on_disk, survey).check(paths)


def stdin_file(name: str) -> str:
    """The file that standard input stands for, absolute; ``-`` is one without a name."""
    return os.path.abspath("__stdin__.py" if name == "-" else name)


@dataclass
class _File:
    """A named file on its way through a run."""

    file: str
    root: str  # of its project
    source: Source | None = None
    facts: ModuleFacts | None = None
    config: Config = field(default_factory=Config)
    unreadable: list[Finding] = field(default_factory=list)
    checked: bool = True  # whether silence about it means anything
    partly: bool = False  # whether cells of a notebook were left out, and the others checked


class _Run:
    def __init__(
        self,
        config: Config,
        stdin: tuple[str, bytes] | None,
        overlays: Mapping[str, bytes],
        with_subjects: bool,
        warm: Warm | None,
        cached: bool,
        survey: Callable[[Project], Iterable[Any]] | None = None,
    ) -> None:
        self.config = config
        self.survey = survey
        self.surveyed: list[Any] = []
        self.cached = cached
        self.with_subjects = with_subjects
        self.warm = warm
        self.finder = Finder(_exclude(config), None if warm is None else warm.listed)
        self.errors: list[ReportError] = []
        self.warnings: list[str] = []
        self.files: dict[str, _File] = {}  # by the path that reports print
        self.workspaces: dict[str, Workspace] = {}
        self.roots: dict[str, str | None] = {}
        self.codes: dict[int, frozenset[str]] = {}  # by the identity of a configuration
        self.options: dict[str, dict[str, dict[str, Any]]] = {}  # of rules, by the project's folder
        self.by_libcst_alone = False
        self.asked: frozenset[str] = frozenset()  # all files, of whatever project
        self.differing: set[str] = set()  # files that libcst and CPython's parser do not read alike
        self.overlays = {file: (files.shown(file), data) for file, data in overlays.items()}
        self.stdin = ""
        if stdin is not None:
            name, data = stdin
            self.stdin = stdin_file(name)
            data = overlays.get(self.stdin, data)
            self.overlays[self.stdin] = (name if name == "-" else files.shown(self.stdin), data)

    @cached_property
    def pages(self) -> dict[str, Page]:
        # Reading them costs as much as reading a hundred files, and most runs of an editor or a hook need none.
        return pages.load()

    def check(self, paths: Sequence[str]) -> Report:
        named = self._named(paths)
        top = common_folder(paths)
        self.asked = frozenset(one.file for one in named)
        projects: dict[str, list[Named]] = {}
        for one in named:
            projects.setdefault(self._root(one.file) or top, []).append(one)
        found = [finding for root, group in projects.items() for finding in self._found(root, group)]
        kept = self._silence(with_fingerprints([finding for finding in found if finding.place.path in self.files]))
        kept = self._measured(kept, top)
        kept.sort(key=lambda finding: finding.sort_key)
        checked = frozenset(file.file for file in self.files.values() if file.checked)
        number = sum(not one.problem for one in named)
        partly = frozenset(file.file for file in self.files.values() if file.partly)
        read = frozenset(source.file for workspace in self.workspaces.values() for source in workspace.sources())
        report = Report(kept, self.errors, number, self._sources(kept), checked, warnings=self.warnings)
        return replace(report, partly=partly, read=read, surveyed=self.surveyed)

    # What was found before

    def _found(self, root: str, group: list[Named]) -> list[Finding]:
        """What there is to say of the files of a project."""
        cache = self._cache(root, group) if self.cached else None
        workspace = self._workspace(root)
        known = cache.load(workspace) if cache is not None else None
        if known is not None and [member.file for member in known.members] == [one.file for one in group]:
            return self._remembered(root, known)
        errors = len(self.errors)
        members = [self._read(one, root) for one in group]
        readable = [file for file in members if file.facts is not None]
        found = self._analyse(root, readable) if readable else []
        found = [finding for finding in map(self._of_whole_cells, found) if finding is not None]
        found += [finding for file in members for finding in file.unreadable]
        if cache is not None and len(self.errors) == errors:
            cache.store(workspace, self._outcome(found, members, workspace))
        return found

    def _cache(self, root: str, group: list[Named]) -> Cache | None:
        """Where to look for what was found in a project; None where it could rest on more than files."""
        from dlcheck.cache import Cache

        if files.root_of(root) != root or any(one.problem for one in group):
            return None
        folders = {os.path.dirname(one.file) for one in group}
        configs = [self.config.for_folder(folder) for folder in sorted(folders)]
        try:
            configs.append(self.config.for_folder(root))
        except ConfigError:
            return None  # told where it is needed
        if any(config.extra_rules for config in configs):
            return None  # what the user's own rules say may rest on anything
        settings = list(dict.fromkeys(repr((one.root, one.settings, one.here, one.overrides)) for one in configs))
        members = [(files.shown(one.file), one.file, one.explicit) for one in group]
        return Cache(root, (settings, configs[-1].targets(root), members, sorted(self.asked)))

    def _remembered(self, root: str, known: Outcome) -> list[Finding]:
        for member in known.members:
            config = self.config.for_folder(os.path.dirname(member.file))
            file = self.files[member.path] = _File(member.file, root, config=config, checked=member.checked)
            file.partly = member.partly
            if member.comments:
                file.source = self._workspace(root).source(member.file)
        for one in known.sources.values():
            self._workspace(root).source(one)  # reports show its lines
        return list(known.findings)

    def _outcome(self, found: list[Finding], members: list[_File], workspace: Workspace) -> Outcome:
        from dlcheck.cache import Member, Outcome

        ours = {file.file for file in members}
        kept = tuple(
            Member(path, file.file, file.checked, file.partly, _may_silence(file.source))
            for path, file in self.files.items()
            if file.file in ours
        )
        named = _paths_in(found)
        return Outcome(tuple(found), kept, {one.path: one.file for one in workspace.sources() if one.path in named})

    def _named(self, paths: Sequence[str]) -> list[Named]:
        excluded = _force_exclude(self.config)
        paths_on_disk = [path for path in paths if path != "-" or not self.stdin]
        lost = {path for path in paths_on_disk if os.path.abspath(path) not in self.overlays and files.is_missing(path)}
        self.errors += [
            ReportError(path, 0, files.MISSING) for path in sorted(lost) if not excluded(os.path.abspath(path))
        ]
        named = self.finder.named([path for path in paths_on_disk if path not in lost], force_exclude=excluded)
        if self.stdin and "-" in paths and not excluded(self.stdin):
            named = [one for one in named if one.file != self.stdin] + [Named(self.stdin, True)]
        return named

    def _root(self, file: str) -> str | None:
        folder = os.path.dirname(file)
        if folder not in self.roots:
            self.roots[folder] = files.root_of(folder)
        return self.roots[folder]

    def _selected(self, config: Config) -> frozenset[str]:
        if id(config) not in self.codes:
            self.codes[id(config)] = config.codes(self._pages_of(config))
        return self.codes[id(config)]

    def _pages_of(self, config: Config) -> dict[str, Page]:
        """The pages of the rules that a configuration can select: ours, and those of the user's own that it names."""
        own: set[str] = set()
        for folder in config.extra_rules:
            from dlcheck import extra

            found = extra.load(folder)
            if isinstance(found, ReportError):
                if found not in self.errors:
                    self.errors.append(found)
            else:
                own |= found
        return {code: page for code, page in self.pages.items() if code.startswith("DLC") or code in own}

    def _workspace(self, root: str) -> Workspace:
        if root not in self.workspaces:
            reader = files.read if self.warm is None else self.warm.read
            skims = None if self.warm is None else self.warm.skims
            self.workspaces[root] = Workspace(root, self.finder, self.overlays, reader, skims)
        return self.workspaces[root]

    # One file

    def _read(self, named: Named, root: str) -> _File:
        path = self.overlays[named.file][0] if named.file in self.overlays else files.shown(named.file)
        file = self.files[path] = _File(named.file, root, config=self.config.for_folder(os.path.dirname(named.file)))
        workspace = self._workspace(root)
        try:
            if named.problem:
                raise UnusableError(named.problem)
            data = workspace.bytes_of(named.file)
            concerned = files.names_library(data)
            if concerned or named.explicit or files.COMMENT in data:
                file.source = workspace.load(named.file)
        except UnusableError as error:
            file.checked = False
            place = Place(path, error.line, 1, error.line, 1)
            file.unreadable.append(self._unreadable(place, error.message))
        except Exception as error:  # noqa: BLE001 -- whatever fails, the other files are to be checked
            file.checked = False
            self.errors.append(_internal(path, error))
        else:
            if concerned and file.source is not None:
                self._parse(file, file.source, files.may_matter(data, named.explicit))
        return file

    def _parse(self, file: _File, source: Source, matters: bool) -> None:
        from dlcheck.facts import Unreadable
        from dlcheck.facts.gate import refuse_unless_python

        file.unreadable = [self._left_out(source, cell) for cell in source.left_out]
        file.checked = not source.left_out
        try:
            if matters:
                file.facts = self._facts(source)
                file.partly = bool(source.left_out)
            else:  # nothing to say of it, unless it is broken
                refuse_unless_python(source.text)
        except Unreadable as error:
            file.checked = False
            file.unreadable = [self._unreadable(_place(source, error.line, error.column), error.message)]
        except Exception as error:  # noqa: BLE001 -- whatever fails, the other files are to be checked
            file.checked = False
            self.errors.append(_internal(source.path, error))

    def _facts(self, source: Source) -> ModuleFacts:
        from dlcheck.facts import extract, sketch

        if self.by_libcst_alone or source.file in self.differing:
            return extract(source)
        return sketch(source) if self.warm is None else self.warm.extract(source)

    def _unreadable(self, place: Place, reason: str) -> Finding:
        page = self.pages[UNREADABLE]
        message, help_ = pages.words(page, error=reason)
        return Finding(page.code, page.name, page.severity, page.confidence, place, message, help_)

    def _left_out(self, source: Source, cell: LeftOut) -> Finding:
        place = Place(source.path, cell.line, cell.column, cell.line, cell.column, cell.number)
        return self._unreadable(place, f"{cell.message}; the other cells are checked, without this one")

    def _of_whole_cells(self, finding: Finding) -> Finding | None:
        """A finding, unless its cell is left out; where one is, no fix can be shown to change nothing there."""
        file = self.files.get(finding.place.path)
        source = file.source if file is not None else None
        if source is None or not source.left_out:
            return finding
        left_out = {cell.number for cell in source.left_out}
        if finding.place.cell in left_out:
            return None
        if finding.fix is None:
            return finding
        if any(edit.place.path == source.path and edit.place.cell in left_out for edit in finding.fix.edits):
            return replace(finding, fix=None, unfixed="a cell does not parse that would have to change")
        return replace(finding, fix=replace(finding.fix, applicability="unsafe"))

    # All files of a project

    def _analyse(self, root: str, members: list[_File]) -> list[Finding]:
        codes = frozenset[str]().union(*(self._selected(file.config) for file in members))
        self.options[root] = self.config.for_folder(root).rule_options(self.pages)
        try:
            return self._run(root, members, codes)
        except Exception as error:  # noqa: BLE001 -- whatever fails, the other files are to be checked
            first = _internal(files.shown(root), error)
        # One file that the model cannot take must not hide what there is to say of the others.
        errors = len(self.errors)
        found = [finding for member in members for finding in self._run_alone(root, member, codes)]
        if len(self.errors) == errors:
            self.errors.append(first)
        return found

    def _run_alone(self, root: str, member: _File, codes: Collection[str]) -> list[Finding]:
        try:
            return self._run(root, [member], codes)
        except Exception as error:  # noqa: BLE001 -- whatever fails, the other files are to be checked
            member.checked = False
            self.errors.append(_internal(member.source.path if member.source else member.file, error))
            return []

    def _run(self, root: str, members: Sequence[_File], codes: Collection[str], again: int = 0) -> list[Finding]:
        from dlcheck.facts import Differs

        try:
            return self._judge(root, members, codes)
        except Differs as differing:
            paths = {differing.file}
        if again == MAX_DIFFERING:
            self.by_libcst_alone = True
            paths = {file.file for file in members}
        self._read_again(paths, members)
        return self._run(root, members, codes, again + 1)

    def _read_again(self, paths: Collection[str], members: Iterable[_File]) -> None:
        """Have libcst alone say what stands in files."""
        self.differing |= set(paths)
        for file in members:
            if file.file in paths and file.source is not None:
                file.facts = None
                self._parse(file, file.source, matters=True)

    def _judge(self, root: str, members: Iterable[_File], codes: Collection[str]) -> list[Finding]:
        from dlcheck.checks import run
        from dlcheck.model import Project
        from dlcheck.model.depth import deep_calls
        from dlcheck.model.scopes import Module

        named = [(file.source, file.facts) for file in members if file.source is not None and file.facts is not None]
        targets = self.config.for_folder(root).targets(root)
        tick = self.warm.tick if self.warm is not None else None
        link = Module if self.warm is None else self.warm.link
        workspace, options = self._workspace(root), self.options[root]
        project = Project(workspace, named, targets, options, self._facts, tick, link, self.asked)
        try:
            with deep_calls():  # first: what begins the run anew should do so early
                seen = list(self.survey(project)) if self.survey is not None else []
            found = run(project, codes, self._extra_failed, self._describe)
            self.surveyed += seen
            return found
        finally:
            if self.warm is not None:
                project.forget()

    @cached_property
    def _describe(self) -> Callable[[Any], dict[str, Any]] | None:
        if not self.with_subjects:
            return None
        from dlcheck.model.subjects import describe

        return describe

    def _extra_failed(self, code: str, error: BaseException) -> None:
        from dlcheck import extra

        self.errors.append(extra.failure(code, error))

    # What is left

    def _silence(self, findings: Iterable[Finding]) -> list[Finding]:
        by_path: dict[str, list[Finding]] = {}
        for finding in findings:
            by_path.setdefault(finding.place.path, []).append(finding)
        return [
            finding
            for path, file in self.files.items()
            if path in by_path or _may_silence(file.source)
            for finding in self._silence_file(file, by_path.get(path, []))
        ]

    def _silence_file(self, file: _File, findings: list[Finding]) -> list[Finding]:
        codes = self._selected(file.config) - file.config.ignored_in(file.file, self.pages)
        findings = [finding for finding in findings if finding.code in codes]
        if file.source is None and findings:  # it seemed to concern nobody, until another file led to it
            file.source = self._workspace(file.root).source(file.file)
        if file.source is not None:
            markers = suppress.markers(file.source, self.pages)
            findings = suppress.silence(findings, file.source, markers)
            if file.checked and UNUSED in codes:
                findings += with_fingerprints(suppress.unused(file.source, markers, codes, self.pages[UNUSED]))
        if _is_test(file.file, self._root(file.file) or file.config.root):
            findings = [_lowered(finding) for finding in findings]
        enough = CONFIDENCES[: CONFIDENCES.index(file.config.min_confidence) + 1]
        return [finding for finding in findings if finding.confidence in enough]

    # What was measured

    def _measured(self, findings: list[Finding], top: str) -> list[Finding]:
        """The findings, with what the records of their projects say of them."""
        if self.config.isolated:
            return findings
        by_root: dict[str, list[Finding]] = {}
        for finding in findings:
            root = self._root(self.files[finding.place.path].file) or top
            by_root.setdefault(root, []).append(finding)
        return [one for root, group in by_root.items() for one in self._measured_in(root, group)]

    def _measured_in(self, root: str, findings: list[Finding]) -> list[Finding]:
        # Most projects have no records: they must not pay for the code that reads them.
        if not os.path.isdir(os.path.join(root, files.RECORDS)):
            return findings
        from dlcheck.measure.store import load

        records = load(root)
        self.warnings += records.problems
        return [records.attached(finding) for finding in findings]

    def _sources(self, findings: Iterable[Finding]) -> dict[str, Source]:
        wanted = _paths_in(findings)
        read = (source for workspace in self.workspaces.values() for source in workspace.sources())
        return {source.path: source for source in read if source.path in wanted}


def _may_silence(source: Source | None) -> bool:
    return source is not None and suppress.may_silence(source)


def _paths_in(findings: Iterable[Finding]) -> set[str]:
    """The paths that findings name, those of their related places and fixes included."""
    found = list(findings)
    paths = {place.path for finding in found for place in (finding.place, *finding.related)}
    return paths | {edit.place.path for finding in found if finding.fix for edit in finding.fix.edits}


def _place(source: Source, line: int, column: int) -> Place:
    """A point that a parser names, moved to where the text has one."""
    line = min(max(line, 1), len(source.starts))
    start = source.offset(line, min(max(column, 1), len(source.line(line)) + 1))
    return source.place(start, start)


def _is_test(file: str, root: str) -> bool:
    *folders, name = os.path.relpath(file, root).split(os.sep)
    return any(folder in ("test", "tests") for folder in folders) or _TEST_FILE.fullmatch(name) is not None


def _lowered(finding: Finding) -> Finding:
    # A file that does not parse is no better for being a test.
    return finding if finding.code == UNREADABLE else replace(finding, severity="info")


def _internal(path: str, error: Exception) -> ReportError:
    return ReportError(path, 0, internal_error(error))


def internal_error(error: Exception) -> str:
    """Words for a fault of our own."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    message = f"internal error: {type(error).__name__}: {error}{where}"
    if os.environ.get("DLCHECK_DEBUG"):
        message += "\n" + "".join(traceback.format_exception(error)).rstrip()
    else:
        message += " (DLCHECK_DEBUG=1 shows the traceback)"
    return message


def exceeds(findings: Iterable[Finding], config: Config, *, confirmed: bool = False) -> bool:
    """Whether a finding is as severe as ``fail-on`` asks for; with ``confirmed``, one that a record confirms.

    What could not be read counts in any case: no measurement can tell what is in it.
    """
    failing: Mapping[str, tuple[str, ...]] = {
        "never": (),
        "error": ("error",),
        "warning": ("error", "warning"),
        "info": ("error", "warning", "info"),
    }
    severe = (finding for finding in findings if finding.severity in failing[config.fail_on])
    if not confirmed:
        return any(True for _ in severe)
    return any(
        finding.code == UNREADABLE or (finding.measurement is not None and finding.measurement.confirms)
        for finding in severe
    )
