"""What configuration is in force: [tool.dlcheck], the command line, and what the project declares."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from dlcheck import files
from dlcheck.findings import CONFIDENCES, SEVERITIES, Confidence

if TYPE_CHECKING:
    from dlcheck.gitignore import Patterns
    from dlcheck.pages import Page
    from dlcheck.targets import Targets

FailOn = Literal["error", "warning", "info", "never"]
FAIL_ON: tuple[FailOn, ...] = (*SEVERITIES, "never")
# A file that could not be checked is no clean file, whatever the selection; only `ignore` switches it off.
ALWAYS = frozenset({"DLC001"})
# The formats of dlcheck.report, by name: that module is not needed to know whether a setting is right.
OUTPUT_FORMATS = ("full", "concise", "json", "sarif", "github", "gitlab", "junit")


class Kind(NamedTuple):
    """What a setting takes: how to check it, in code and in words."""

    name: str  # strings | string | flag | table
    words: str
    choices: tuple[str, ...] = ()
    pattern: str = ""


_CODES = Kind("strings", "a list of rules: codes, prefixes, names or ALL")
_PATTERNS = Kind("strings", "a list of patterns, written as in .gitignore")
_VERSION = Kind("string", 'a version such as "2.4"', pattern=r"\d+\.\d+(\.\d+)*")

KEYS: dict[str, Kind] = {
    "select": _CODES,
    "extend-select": _CODES,
    "ignore": _CODES,
    "extend-ignore": _CODES,
    "per-file-ignores": Kind("table", "a table of patterns, each with a list of rules"),
    "min-confidence": Kind("string", f"one of {', '.join(CONFIDENCES)}", CONFIDENCES),
    "fail-on": Kind("string", f"one of {', '.join(FAIL_ON)}", FAIL_ON),
    "exclude": _PATTERNS,
    "extend-exclude": _PATTERNS,
    "force-exclude": Kind("flag", "true or false"),
    "output-format": Kind("string", f"one of {', '.join(OUTPUT_FORMATS)}", OUTPUT_FORMATS),
    "baseline": Kind("string", "the path of a baseline file"),
    "target-torch": _VERSION,
    "target-python": _VERSION,
    "extra-rules": Kind("strings", "a list of folders with rules of your own"),
    "rules": Kind("options", "a table of rules, each with a table of options"),
}
# Set in every hook that pre-commit runs: there, nobody has looked at what a configuration imports.
PRE_COMMIT = "PRE_COMMIT"


class ConfigError(Exception):
    """A setting that cannot be meant; one line for people, naming where it stands."""


class Setting(NamedTuple):
    value: Any
    origin: str  # "default", a file, "command line", ...


@dataclass(frozen=True, eq=False)
class Config:
    """The settings that hold in one folder.

    ``root`` is what the patterns of the configuration file are relative to; ``overrides`` come
    from the command line and hold in every folder of a run.
    """

    root: str = field(default_factory=os.getcwd)
    file: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    isolated: bool = True
    override_origins: Mapping[str, str] = field(default_factory=dict)
    here: str = field(default_factory=os.getcwd)
    allow_extra_rules: bool = False
    _folders: dict[str, Config] = field(default_factory=dict, compare=False, repr=False)

    def for_folder(self, folder: str) -> Config:
        """The configuration that holds in a folder: its nearest file, under the same command line."""
        if self.isolated:
            return self
        known = self._folders.get(folder)
        if known is None:
            parent = os.path.dirname(folder)
            own = find_in(folder)
            if own is not None:
                known = self._under(folder, *own)
            elif parent == folder:
                known = self._under(self.here, None, {})
            else:
                known = self.for_folder(parent)
            self._folders[folder] = known
        return known

    def _under(self, root: str, file: str | None, settings: Mapping[str, Any]) -> Config:
        return replace(self, root=root, file=file, settings=settings, isolated=False)

    def setting(self, key: str) -> Setting:
        """The value of a key that is one value, and where it comes from."""
        if self.overrides.get(key) is not None:
            return Setting(self.overrides[key], self.override_origins.get(key, "command line"))
        if key in self.settings:
            return Setting(self.settings[key], files.shown(self.file) if self.file else "configuration")
        return Setting(_DEFAULTS.get(key), "default")

    @property
    def min_confidence(self) -> Confidence:
        return cast(Confidence, self.setting("min-confidence").value)

    @property
    def fail_on(self) -> FailOn:
        return cast(FailOn, self.setting("fail-on").value)

    @property
    def output_format(self) -> str:
        return str(self.setting("output-format").value)

    @property
    def force_exclude(self) -> bool:
        return bool(self.setting("force-exclude").value)

    @property
    def baseline(self) -> str | None:
        """The absolute path of the baseline file, if there is one."""
        value = self.setting("baseline").value
        return os.path.normpath(os.path.join(self._base("baseline"), value)) if value else None

    def _base(self, key: str) -> str:
        """What the paths in a setting are relative to."""
        return self.here if self.overrides.get(key) is not None else self.root

    # Files

    @cached_property
    def exclude(self) -> Patterns:
        """The patterns of ``exclude`` and ``extend-exclude``, for absolute paths."""
        from dlcheck.gitignore import Patterns, anchored

        patterns = [anchored(pattern, self._base("exclude")) for pattern in self.setting("exclude").value]
        patterns += [anchored(pattern, self.root) for pattern in self.settings.get("extend-exclude", ())]
        patterns += [anchored(pattern, self.here) for pattern in self.overrides.get("extend-exclude") or ()]
        return Patterns("", patterns)

    def excludes(self, file: str) -> bool:
        """Whether a file, or a folder of the project that it lies in, is excluded."""
        return _matches(self.exclude, file, self.root)

    @cached_property
    def _per_file(self) -> tuple[tuple[Patterns, bool, tuple[str, ...]], ...]:
        from dlcheck.gitignore import Patterns, anchored

        table = self.settings.get("per-file-ignores", {})
        rows = [(anchored(pattern, self.root), codes) for pattern, codes in table.items()]
        given = self.overrides.get("per-file-ignores") or {}
        rows += [(anchored(pattern, self.here), codes) for pattern, codes in given.items()]
        return tuple((Patterns("", [row.removeprefix("!")]), row.startswith("!"), tuple(codes)) for row, codes in rows)

    def ignored_in(self, file: str, pages: Mapping[str, Page]) -> frozenset[str]:
        """The codes that per-file-ignores switches off in a file."""
        selectors = [
            selector
            for patterns, negated, codes in self._per_file
            if _matches(patterns, file, self.root) is not negated
            for selector in codes
        ]
        return frozenset().union(*(resolve(selector, pages) for selector in selectors))

    # Rules

    def unknown_rules(self, pages: Callable[[], Mapping[str, Page]]) -> list[str]:
        """A line for each rule that is named somewhere and does not exist.

        Such a name leaves all other rules as they are, and may be of another version; in
        ``select`` it would leave nothing: there, it is a ConfigError.
        """
        lines = []
        for table in (self.settings, self.overrides):
            named = [(key, selector) for key in _SELECTING for selector in table.get(key) or ()]
            by_pattern = (table.get("per-file-ignores") or {}).values()
            named += [("per-file-ignores", selector) for selectors in by_pattern for selector in selectors]
            for key, selector in named:
                if not resolve(selector, pages()) and not self._may_be_left_out(selector, pages()):
                    where = f"--{key}" if table is self.overrides else f"{files.shown(self.file or '')}: `{key}`"
                    words = [*pages(), *(page.name for page in pages().values())]
                    line = f"{where}: there is no rule `{selector}`{suggestion(selector, words)}"
                    if key == "select":
                        raise ConfigError(line)
                    lines.append(line)
        return lines

    def _may_be_left_out(self, selector: str, pages: Mapping[str, Page]) -> bool:
        """Whether a name can be that of a rule of the user's own, where none of these is loaded.

        What holds for them must not stop a run that leaves them out, as that of a pre-commit hook, nor hide
        why they could not be loaded.
        """
        return (
            bool(self.settings.get("extra-rules"))
            and not selector.startswith("DLC")
            and all(code.startswith("DLC") for code in pages)
        )

    def codes(self, pages: Mapping[str, Page]) -> frozenset[str]:
        """The rules that are on.

        As in ruff: within one place the more specific selector wins (``ALL``, then ever longer
        prefixes, then codes and names), ``ignore`` among equals; and ``select`` on the command
        line forgets what the file says.  Only ``ignore`` takes out DLC001.
        """
        chosen = {code for code, page in pages.items() if page.default}
        for table in (self.settings, self.overrides):
            if table.get("select") is not None:
                chosen = set(ALWAYS & pages.keys())
            steps = [(key, selector) for key in _SELECTING for selector in table.get(key) or ()]
            for key, selector in sorted(steps, key=lambda step: _specificity(step[1])):
                codes = resolve(selector, pages)
                chosen = chosen - codes if key.endswith("ignore") else chosen | codes
        return frozenset(chosen)

    def rule_options(self, pages: Mapping[str, Page]) -> dict[str, dict[str, Any]]:
        """The options of rules, by code; raises ConfigError for what is no option of a rule, or of another kind."""
        found: dict[str, dict[str, Any]] = {}
        for selector, given in self.settings.get("rules", {}).items():
            where = f"{files.shown(self.file or '')}: `rules.{selector}`"
            page = next((page for page in pages.values() if selector in (page.code, page.name)), None)
            if page is None and self._may_be_left_out(selector, pages):
                continue
            if page is None:
                words = [*pages, *(page.name for page in pages.values())]
                raise ConfigError(f"{where}: there is no rule `{selector}`{suggestion(selector, words)}")
            for name, value in given.items():
                option = page.options.get(name)
                if option is None:
                    known = ", ".join(page.options) or "none"
                    hint = suggestion(name, page.options)
                    raise ConfigError(f"{where}: {page.code} has no option `{name}` (it has: {known}){hint}")
                if not _is_like(value, option.default):
                    kind = f"a value such as {option.default!r}"
                    raise ConfigError(f"{where}: `{name}` must be {kind}, not {_told(value)}")
            found.setdefault(page.code, {}).update(given)
        return found

    @property
    def extra_rules(self) -> tuple[str, ...]:
        """The absolute folders with rules of the user's own.

        Only a configuration that holds where the user stands may name them: one that lies deeper belongs to what is
        checked, and checking imports nothing of that.
        """
        if not self.allow_extra_rules or not files.within(self.root, self.here):
            return ()
        return tuple(os.path.normpath(os.path.join(self.root, name)) for name in self.settings.get("extra-rules", ()))

    def targets(self, root: str) -> Targets:
        """The versions that the project at ``root`` is written for."""
        from dlcheck.targets import Targets

        torch, python = self.target(root, "torch"), self.target(root, "python")
        return Targets(torch.newest, python.oldest, python.newest, torch.oldest, linux_only(root))

    def target(self, root: str, what: Literal["torch", "python"]) -> Declared:
        """One target version: as the options say, else as the project declares it."""
        given = self.setting(f"target-{what}")
        if given.value:
            version = _version(given.value)
            return Declared(version, version, str(given.value), given.origin)
        return declared(root)[what == "python"]


# Selecting before ignoring: among equally specific selectors the last one wins.
_SELECTING = ("select", "extend-select", "ignore", "extend-ignore")
_DEFAULTS: dict[str, Any] = {
    "min-confidence": "medium",
    "fail-on": "warning",
    "exclude": files.DEFAULT_EXCLUDE,
    "force-exclude": False,
    "output-format": "full",
}


def _matches(patterns: Patterns, file: str, root: str) -> bool:
    """Whether patterns name a file or a folder that it lies in, below ``root``."""
    folders = takewhile(lambda place: place != root and files.within(root, place), files.above(os.path.dirname(file)))
    return bool(patterns.match(file, False)) or any(patterns.match(folder, True) for folder in folders)


# Rules


def resolve(selector: str, pages: Mapping[str, Page]) -> set[str]:
    """The codes that a code, a prefix, a name or ``ALL`` stands for."""
    if selector == "ALL":
        return set(pages)
    if re.fullmatch(r"[A-Z]{3}[0-9]*", selector):
        return {code for code in pages if code.startswith(selector)}
    return {code for code, page in pages.items() if page.name == selector}


def _specificity(selector: str) -> int:
    if selector == "ALL":
        return 0
    return len(selector) if re.match(r"[A-Z]{3}", selector) else len("DLC000")


def suggestion(word: str, words: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(words), 1)
    return f"; did you mean `{close[0]}`?" if close else ""


# Files


def load(
    folder: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    isolated: bool = False,
    origins: Mapping[str, str] | None = None,
    allow_extra_rules: bool = False,
    trusted: bool = True,
) -> Config:
    """The configuration of a folder (the current one): its nearest file under the overrides.

    Rules of the user's own are left out where ``isolated``, and under pre-commit, unless they are allowed; and where
    nobody trusts the folder.
    """
    allowed = trusted and (allow_extra_rules or not isolated and not os.environ.get(PRE_COMMIT))
    start = Config(
        overrides=overrides or {}, isolated=isolated, override_origins=origins or {}, allow_extra_rules=allowed
    )
    check(start.overrides, "command line")
    place = os.path.abspath(folder or ".")
    if isolated and allowed:
        file = replace(start, isolated=False).for_folder(place)
        rules = {key: value for key, value in file.settings.items() if key == "extra-rules"}
        return replace(start, root=file.root, file=file.file, settings=rules)
    return start.for_folder(place)


def find_in(folder: str) -> tuple[str, dict[str, Any]] | None:
    """The configuration file of this very folder and what it says."""
    file = os.path.join(folder, "dlcheck.toml")
    if os.path.isfile(file):
        table = _toml(file)
        check(table, files.shown(file))
        return file, table
    file = os.path.join(folder, "pyproject.toml")
    if not os.path.isfile(file) or b"dlcheck" not in _bytes(file):
        return None
    tools = _toml(file).get("tool")
    if not isinstance(tools, dict) or "dlcheck" not in tools:
        return None
    table = tools["dlcheck"]
    if not isinstance(table, dict):
        raise ConfigError(f"{files.shown(file)}: tool.dlcheck must be a table")
    check(table, files.shown(file))
    return file, table


def _bytes(file: str) -> bytes:
    try:
        return files.read(file)
    except files.UnusableError as error:
        raise ConfigError(f"{files.shown(file)}: {error.message}") from None


def _toml(file: str) -> dict[str, Any]:
    import tomli

    try:
        return tomli.loads(_bytes(file).decode("utf-8-sig"))  # Windows editors like to begin with a mark
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, a number too long, or nested too deep
        raise ConfigError(f"{files.shown(file)}: {error}") from None


def check(table: Mapping[str, Any], where: str) -> None:
    """Raise ConfigError for a key that does not exist or a value that it cannot take."""
    for key, value in table.items():
        kind = KEYS.get(key)
        if kind is None:
            raise ConfigError(f"{where}: unknown key `{key}`{suggestion(key, KEYS)}")
        if value is not None and not _fits(kind, value):
            raise ConfigError(f"{where}: `{key}` must be {kind.words}, not {_told(value)}")


def _fits(kind: Kind, value: Any) -> bool:
    if kind.name == "flag":
        return isinstance(value, bool)
    if kind.name == "strings":
        return _strings(value)
    if kind.name == "options":
        return isinstance(value, Mapping) and all(isinstance(options, Mapping) for options in value.values())
    if kind.name == "table":
        return isinstance(value, Mapping) and all(_strings(codes) for codes in value.values())
    if not isinstance(value, str) or not value:
        return False
    if kind.choices:
        return value in kind.choices
    return not kind.pattern or re.fullmatch(kind.pattern, value) is not None


def _is_like(value: Any, default: Any) -> bool:
    """Whether a value is of the kind of an option's default; a whole number will do for any number."""
    if isinstance(default, float):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return type(value) is type(default)


def _strings(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) and item for item in value)


def _told(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# Versions


class Declared(NamedTuple):
    """The oldest and newest version that a requirement allows, the requirement, and where it stands."""

    oldest: tuple[int, int] | None
    newest: tuple[int, int] | None
    text: str
    origin: str


_NOTHING = Declared(None, None, "", "not declared")
_CLAUSE = re.compile(r"(===|==|~=|>=|<=|!=|>|<|\^|~|=)?\s*v?(\d{1,9}(?:\.\d{1,9})*)(?!\d)(\.\*|\.x)?")
_TORCH = re.compile(r"torch\s*(?:\[[^\]]*\])?\s*\(?\s*((?:[<>=!~^][^;#\"'@\n)]*)?)(?![\w.-])", re.IGNORECASE)
# The last minor version of a major one, where it is history: what "below 2" allows.
_LAST_MINORS = {("torch", 1): 13, ("python", 2): 7}


def declared(root: str) -> tuple[Declared, Declared]:
    """What a project says of its torch and of its Python, in pyproject.toml, setup.cfg, setup.py or requirements."""
    torch = python = _NOTHING
    for file, requirements, pythons in _declarations(root):
        origin = files.shown(file)
        if torch is _NOTHING:
            found = (_TORCH.fullmatch(text.strip().split(";")[0].split("#")[0].strip()) for text in requirements)
            torch = next((_declare("torch", match[1], origin) for match in found if match), torch)
        if python is _NOTHING:
            python = next((_declare("python", text, origin) for text in pythons if text), python)
    return torch, python


_SYSTEM = re.compile(r"Operating System :: ([\w :/.-]+)")


def linux_only(root: str) -> bool:
    """Whether the classifiers of a project name Linux and no other system."""
    texts = (_text(os.path.join(root, name)) for name in ("pyproject.toml", "setup.cfg", "setup.py"))
    systems = {found.strip() for text in texts for found in _SYSTEM.findall(text)}
    return bool(systems) and all(system.startswith("POSIX :: Linux") for system in systems)


def _declarations(root: str) -> Iterable[tuple[str, list[str], list[str]]]:
    """Files of a project that declare something: their requirements, and the Pythons they allow."""
    file = os.path.join(root, "pyproject.toml")
    if os.path.isfile(file):
        yield file, *_from_pyproject(file)
    file = os.path.join(root, "setup.cfg")
    if os.path.isfile(file):
        yield file, _text(file).splitlines(), re.findall(r"^\s*python_requires\s*=\s*(.+)$", _text(file), re.MULTILINE)
    file = os.path.join(root, "setup.py")
    if os.path.isfile(file):
        text = _text(file)
        strings = [match[2] for match in re.finditer(r"""(["'])(torch\b.*?)\1""", text)]
        yield file, strings, re.findall(r"""python_requires\s*=\s*["'](.+?)["']""", text)
    try:
        names = sorted(os.listdir(root), key=lambda name: (len(name), name))
    except OSError:
        return
    for name in names:
        if re.fullmatch(r"requirements[\w.-]*\.(txt|in)", name):
            yield os.path.join(root, name), _text(os.path.join(root, name)).splitlines(), []


def _from_pyproject(file: str) -> tuple[list[str], list[str]]:
    try:
        document = _toml(file)
    except ConfigError:
        return [], []
    project, poetry = _at(document, "project"), _at(document, "tool", "poetry", "dependencies")
    listed = project.get("dependencies")
    requirements = [text for text in listed if isinstance(text, str)] if isinstance(listed, list) else []
    for extra in _at(project, "optional-dependencies").values():
        requirements += [text for text in extra if isinstance(text, str)] if isinstance(extra, list) else []
    torch = poetry.get("torch")
    torch = torch.get("version") if isinstance(torch, dict) else torch
    if isinstance(torch, str):
        requirements.append(f"torch{'==' if torch[:1].isdigit() else ''}{torch}")
    pythons = [text for text in (project.get("requires-python"), poetry.get("python")) if isinstance(text, str)]
    return requirements, pythons


def _at(table: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    for key in keys:
        inner = table.get(key)
        if not isinstance(inner, dict):
            return {}
        table = inner
    return table


def _text(file: str) -> str:
    try:
        return files.read(file).decode("utf-8", "replace")
    except files.UnusableError:
        return ""


def _declare(what: str, text: str, origin: str) -> Declared:
    """The bounds of a version specifier; a bound that says nothing yet (``<3`` while 2 is current) is none."""
    oldest: list[tuple[int, int]] = []
    newest: list[tuple[int, int]] = []
    for match in filter(None, map(_CLAUSE.match, re.split(r"[,|\s]+(?=[<>=!~^\d])", text.strip()))):
        operator, parts = match[1] or "==", [int(part) for part in match[2].split(".")]
        version = (parts[0], parts[1] if len(parts) > 1 else 0)
        if operator in (">=", ">", "~=", "^", "~", "==", "===", "="):
            oldest.append(version)
        # How many parts a version must have to name one minor version, by operator.
        parts_of_a_pin = {"==": 2, "===": 2, "=": 2, "<=": 1, "~=": 3, "~": 2}.get(operator)
        if parts_of_a_pin is not None and len(parts) >= parts_of_a_pin:
            newest.append(version)
        elif operator == "<":
            newest += _below(what, parts)
    return Declared(max(oldest, default=None), min(newest, default=None), text.strip(), origin)


def _below(what: str, parts: Sequence[int]) -> list[tuple[int, int]]:
    major, minor = parts[0], parts[1] if len(parts) > 1 else 0
    if any(parts[2:]):
        return [(major, minor)]
    if minor:
        return [(major, minor - 1)]
    last = _LAST_MINORS.get((what, major - 1))
    return [(major - 1, last)] if last is not None else []


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def common_folder(paths: Collection[str]) -> str:
    """The folder that all paths lie in: its configuration speaks for the run as a whole."""
    places = [os.path.abspath(path) for path in paths] or [os.getcwd()]
    places = [place if os.path.isdir(place) else os.path.dirname(place) for place in places]
    try:
        return os.path.commonpath(places)
    except ValueError:  # several drives
        return places[0]
