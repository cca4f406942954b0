"""The pages of the rules: their metadata, their words and their documentation."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from dlcheck.findings import CONFIDENCES, SEVERITIES, Confidence, Severity

FixKind = Literal["safe", "unsafe", "none"]
FIX_KINDS: tuple[FixKind, ...] = ("safe", "unsafe", "none")

HERE = Path(__file__).resolve().parent
# What `dlcheck rule` does not show: cases that only the tests read.
HIDDEN = "## More cases"

_TITLE = re.compile(
    r"# (?P<name>[a-z0-9]+(?:-[a-z0-9]+)*) \((?P<code>[A-Z]{3}[0-9]{3})\)\s*\n+```toml\n(?P<toml>.*?)\n```\n", re.S
)


_FILE = re.compile(r"[A-Z]{3}[0-9]{3}-.+\.md")


@functools.cache
def _published() -> str:
    """Where the pages are published: `Rules` among the package's `[project.urls]`, once its owner has given it."""
    from importlib import metadata

    try:
        given: list[str] = metadata.metadata("dlcheck").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return ""
    named = {label.strip(): url.strip() for label, _, url in (one.partition(",") for one in given)}
    return named.get("Rules", "").rstrip("/")


class PageError(Exception):
    """A page that is not what design.md says a page is."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One of several things that a rule says; None where it says it as the page does."""

    name: str
    message: str | None = None
    severity: Severity | None = None
    confidence: Confidence | None = None
    fix: FixKind | None = None
    help: str | None = None


@dataclass(frozen=True, slots=True)
class Option:
    """A threshold of a rule that is a matter of taste; ``help`` says in one sentence what it does."""

    name: str
    default: Any
    help: str


@dataclass(frozen=True, slots=True)
class Page:
    """A rule as its page describes it.

    ``body`` is the documentation, from the first heading after the metadata to the end.
    ``message`` and ``help`` hold fields in braces that the check fills in.
    """

    code: str
    name: str
    body: str
    summary: str
    message: str
    severity: Severity
    confidence: Confidence
    default: bool
    fix: FixKind
    measure: str | None
    since: str
    references: tuple[str, ...] = ()
    variants: Mapping[str, Variant] = field(default_factory=dict)
    help: str = ""
    options: Mapping[str, Option] = field(default_factory=dict)

    def variant(self, name: str = "") -> Variant:
        """A variant with nothing left open; without a name, the page itself."""
        said = self.variants[name] if name else Variant("")
        return Variant(
            name,
            self.message if said.message is None else said.message,
            said.severity or self.severity,
            said.confidence or self.confidence,
            said.fix or self.fix,
            self.help if said.help is None else said.help,
        )

    @property
    def severities(self) -> tuple[str, ...]:
        """Its own first, then those of its variants."""
        of_variants = (said.severity or self.severity for said in self.variants.values())
        return tuple(dict.fromkeys((self.severity, *of_variants)))

    @property
    def documentation(self) -> str:
        """What people read: the body up to the cases that only tests need."""
        return self.body.split(f"\n{HIDDEN}", 1)[0].strip() + "\n"

    def as_json(self) -> dict[str, Any]:
        """The page as ``rule --output-format json`` gives it."""
        own = {slot: getattr(self, slot) for slot in self.__slots__ if slot not in _TOLD_APART}
        variants = {
            name: {key: value for key in _VARIANT_KEYS if (value := getattr(said, key)) is not None}
            for name, said in self.variants.items()
        }
        return {
            **own,
            "references": list(self.references),
            "variants": variants,
            "options": {name: {"default": said.default, "help": said.help} for name, said in self.options.items()},
            "documentation": self.documentation,
        }


def folder() -> Path:
    """Where the pages lie: inside the installed package, or beside it in a check-out."""
    # An editable install leaves a stale copy under site-packages; only paths from this file find the live one.
    places = (HERE / "rules", HERE.parent / "rules")
    return next((place for place in places if place.is_dir() and any(place.glob("DLC*.md"))), places[-1])


@functools.cache
def load() -> dict[str, Page]:
    """All pages by code, in the order of their codes."""
    place = folder()
    return read(place) if place.is_dir() else {}


def read(place: Path) -> dict[str, Page]:
    """The pages in a folder by code, in the order of their codes; raises PageError and OSError."""
    names = sorted(name for name in os.listdir(place) if _FILE.fullmatch(name))
    found: dict[str, Page] = {}
    for name in names:
        page = parse((place / name).read_text(encoding="utf-8"), name)
        if page.code in found or page.name in (other.name for other in found.values()):
            raise PageError(f"{name}: {page.code} ({page.name}) has another page, or its name is taken")
        found[page.code] = page
    return found


def register(pages: Mapping[str, Page]) -> None:
    """Add the pages of a project's own rules to those that ``load`` and ``find`` know."""
    load().update(pages)


def find(code_or_name: str) -> Page | None:
    """The page of a rule by its code or its name."""
    pages = load()
    return pages.get(code_or_name.upper()) or next((page for page in pages.values() if page.name == code_or_name), None)


def address(code: str) -> str | None:
    """Where the page of a rule of ours is published, if it is."""
    page = load().get(code)
    return f"{_published()}/{page.code}-{page.name}" if page is not None and _own(page) and _published() else None


def _own(page: Page) -> bool:
    return page.code.startswith("DLC")


def parse(text: str, file: str) -> Page:
    """The page in a file's text; raises PageError for what is missing or wrong in its head."""
    import tomli

    head = _TITLE.match(text)
    if head is None:
        raise PageError(f"{file}: must begin with `# name (DLC000)` and a toml block")
    try:
        table = tomli.loads(head["toml"])
    except (ValueError, RecursionError) as error:  # also for a number that is too long, or lists that nest too deep
        raise PageError(f"{file}: {error}") from None
    variants, options = _tables(file, table, "variant"), _tables(file, table, "option")
    _check(file, table, needed=("summary", "message", "severity", "confidence", "since"), allowed=_PAGE_KEYS)
    for name, said in variants.items():
        _check(f"{file}: variant {name}", said, needed=(), allowed=_VARIANT_KEYS)
    for name, said in options.items():
        _check(f"{file}: option {name}", said, needed=("default", "help"), allowed=_OPTION_KEYS)
    return Page(
        code=head["code"],
        name=head["name"],
        body=text[head.end() :].lstrip("\n"),
        summary=table["summary"],
        message=table["message"],
        severity=table["severity"],
        confidence=table["confidence"],
        default=table.get("default", True),
        fix=table.get("fix", "none"),
        measure=table.get("measure"),
        since=table["since"],
        references=tuple(table.get("references", ())),
        variants={name: Variant(name, **said) for name, said in variants.items()},
        help=table.get("help", ""),
        options={name: Option(name, **said) for name, said in options.items()},
    )


# What ``as_json`` does not take as it stands.
_TOLD_APART = ("body", "references", "variants", "options")
_OPTION_KEYS: dict[str, type | tuple[str, ...]] = {"default": object, "help": str}


_VARIANT_KEYS: dict[str, type | tuple[str, ...]] = {
    "message": str,
    "severity": SEVERITIES,
    "confidence": CONFIDENCES,
    "fix": FIX_KINDS,
    "help": str,
}
_PAGE_KEYS: dict[str, type | tuple[str, ...]] = {
    **_VARIANT_KEYS,
    "summary": str,
    "default": bool,
    "measure": str,
    "since": str,
    "references": list,
}


def _tables(file: str, table: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """Take the tables ``[variant.name]`` or ``[option.name]`` out of a page's head."""
    found = table.pop(kind, {})
    if not isinstance(found, dict) or not all(isinstance(said, dict) for said in found.values()):
        raise PageError(f"{file}: each `{kind}` must be a table, `[{kind}.name]`")
    return found


def _check(
    where: str, table: Mapping[str, Any], *, needed: tuple[str, ...], allowed: Mapping[str, type | tuple[str, ...]]
) -> None:
    for key in needed:
        if key not in table:
            raise PageError(f"{where}: `{key}` is missing")
    for key, value in table.items():
        takes = allowed.get(key)
        if takes is None:
            raise PageError(f"{where}: unknown key `{key}`")
        if isinstance(takes, tuple) and value not in takes:
            raise PageError(f"{where}: `{key}` must be one of {', '.join(takes)}")
        if isinstance(takes, type) and not isinstance(value, takes):
            raise PageError(f"{where}: `{key}` must be a {takes.__name__}")
        if takes is list and not all(isinstance(item, str) for item in value):
            raise PageError(f"{where}: `{key}` must be a list of strings")


STUB = """\
# {name} ({code})

```toml
summary = "What the rule finds, in one line"
message = "`{{call}}` does what it should not"
help = "What to do instead, in one sentence."
severity = "warning"
confidence = "medium"
default = true
fix = "none"
since = "{version}"
references = []
```

## What it does

## Why is this bad?

## Example

```python
from torch.utils.data import DataLoader

loader = DataLoader(dataset)  # {code}
```

```text
```

Use instead:

```python
```

## Fix safety

There is no fix: why not.

## When not to use it

```python
```

## More cases
"""


def stub(code: str, name: str, version: str) -> str:
    """The text that a new page starts from."""
    return STUB.format(code=code, name=name, version=".".join(version.split(".")[:2]))


def is_code(text: str) -> bool:
    return re.fullmatch(r"[A-Z]{3}[0-9]{3}", text) is not None


def is_name(text: str) -> bool:
    return re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)+", text) is not None


def words(page: Page, variant: str = "", **fields: object) -> tuple[str, str]:
    """Message and help of a page or of one of its variants, with their fields filled in."""
    said = page.variant(variant)
    return cast(str, said.message).format(**fields), cast(str, said.help).format(**fields)
