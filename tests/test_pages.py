"""The pages of the rules are complete, and every block of them does what it says.

A python block is checked as train.py, or under the name that a line above it gives (`data.py`:).
Named blocks that follow one another, without words between, make up one program.  Marks (``# DLC101`` at the end of a
line; ``# DLC101, DLC101`` where it is found twice) are the findings, exactly.  A text block is the
concise report on the program above it, a diff block what the fixes of the page's rule do to it.

``python -m tests.test_pages`` writes rules/README.md anew; with a code behind it, it prints what the rule finds in each
program of its page, and what its fixes change there.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dlcheck import pages
from dlcheck.checks import RULES
from dlcheck.config import Config
from dlcheck.engine import Report, check
from dlcheck.findings import Finding
from dlcheck.fixing import fix
from dlcheck.pages import Page
from dlcheck.report import render
from website.rules import FAMILIES

FOLDER = Path(__file__).resolve().parent.parent / "rules"
PAGES = pages.load()
# Found by the engine, not by a check.
ENGINE_RULES = {"DLC001", "DLC002"}

HEADINGS = ("What it does", "Why is this bad?", "Example", "Fix safety", "When not to use it", "Measured", "More cases")
OPTIONAL_HEADINGS = {"Measured", "More cases"}

HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
FENCE = re.compile(r"(?:^`(?P<file>[^`\n]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"# (DLC\d{3}(?:, DLC\d{3})*)$")
REPORTED = re.compile(r"^\S+:\d+:\d+: ")


@dataclass
class Program:
    """Blocks that are checked together, and what the page says of them."""

    page: Page
    section: str
    line: int
    named: bool
    files: dict[str, str] = field(default_factory=dict)
    report: str | None = None
    diff: str | None = None

    @property
    def marks(self) -> list[tuple[str, int, str]]:
        """File, line and code of each finding that the marks name, sorted."""
        return sorted(
            (name, number, code)
            for name, text in self.files.items()
            if name.endswith(".py")
            for number, line in enumerate(text.splitlines(), 1)
            if (mark := MARK.search(line))
            for code in mark[1].split(", ")
        )

    @property
    def own_marks(self) -> list[tuple[str, int, str]]:
        return [mark for mark in self.marks if mark[2] == self.page.code]


def programs(page: Page) -> Iterator[Program]:
    """The programs of a page, in order."""
    sections = [(found.start(), found[1]) for found in HEADING.finditer(page.body)]
    current: Program | None = None
    end = 0
    for block in FENCE.finditer(page.body):
        follows, end = not page.body[end : block.start()].strip(), block.end()
        kind, name, text = block["kind"], block["file"], block["text"]
        if kind in ("text", "diff"):
            assert current is not None, f"{page.code}: a {kind} block without a program above it"
            if kind == "text":
                current.report = text
            else:
                current.diff = text
            continue
        section = [title for start, title in sections if start < block.start()][-1]
        if not (name and follows and current and current.named):
            if current is not None:
                yield current
            current = Program(page, section, page.body.count("\n", 0, block.start()) + 1, bool(name))
        assert current is not None
        current.files[name or "train.py"] = text
    if current is not None:
        yield current


PROGRAMS = [
    pytest.param(program, id=f"{page.code}-{number}-{program.section}".replace(" ", "_"))
    for page in PAGES.values()
    for number, program in enumerate(programs(page), 1)
]


def run(program: Program, place: Path) -> Report:
    """The report on a program, of the default selection and the page's own rule."""
    for name, text in program.files.items():
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    # The folder is a project of its own, wherever temporary folders lie.
    (place / "pyproject.toml").touch()
    return check(["."], Config(isolated=False, overrides={"extend-select": [program.page.code]}))


def fixed(program: Program) -> dict[str, str]:
    """The files of a program, which lies in the current folder, that the fixes of the page's rule change."""
    config = Config(isolated=False, overrides={"select": [program.page.code]})
    done = fix(lambda after: check(["."], config, overlays=after), unsafe=True)
    assert not done.errors
    return {change.path: change.after.decode() for change in done.changes}


def changed_lines(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    return [
        line
        for name in before
        for line in difflib.unified_diff(
            before[name].splitlines(), after.get(name, before[name]).splitlines(), n=0, lineterm=""
        )
        if not line.startswith(("---", "+++", "@@"))
    ]


def said_by(page: Page, finding: Finding) -> list[str]:
    """The variants of a page, "" for itself, that can have made a finding."""
    return [
        name
        for name in ("", *page.variants)
        for said in [page.variant(name)]
        if said.severity == finding.severity
        and said.confidence == finding.confidence
        and re.fullmatch(_pattern(said.message or ""), finding.message, re.DOTALL)
        and (finding.fix is None or said.fix in (finding.fix.applicability, "safe"))
    ]


def _pattern(message: str) -> str:
    return re.sub(r"\\\{\w+\\\}", ".+", re.escape(message))


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_is_reported_as_its_page_says(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report = run(program, tmp_path)
    assert not report.errors
    found = sorted((finding.place.path, finding.place.line, finding.code) for finding in report.findings)
    assert found == program.marks

    for finding in report.findings:
        page = PAGES[finding.code]
        assert said_by(page, finding), f"not the words, severity and fix of {page.code}: {finding}"
        assert finding.rule == page.name
        assert finding.fix is None or finding.fix.applicability in ("safe", "unsafe")

    if program.report is not None:
        told = render(report, "concise", pages=PAGES, color=False)
        assert [line for line in told.splitlines() if REPORTED.match(line)] == program.report.splitlines()

    own = [finding for finding in report.findings if finding.code == program.page.code]
    after = fixed(program) if any(finding.fix for finding in own) else {}
    if program.diff is not None:
        assert changed_lines(program.files, after) == program.diff.splitlines()
    if after:
        again = tmp_path / "fixed"
        again.mkdir()
        monkeypatch.chdir(again)
        mended = Program(program.page, program.section, program.line, program.named, {**program.files, **after})
        left = [finding.code for finding in run(mended, again).findings]
        assert left.count(program.page.code) == sum(finding.fix is None for finding in own)
        assert "DLC001" not in left
        assert not fixed(mended)


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_every_variant_is_shown(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: set[str] = set()
    for number, program in enumerate(programs(page)):
        if page.variants and program.own_marks:
            place = tmp_path / str(number)
            place.mkdir()
            monkeypatch.chdir(place)
            findings = run(program, place).findings
            shown.update(*(said_by(page, finding) for finding in findings if finding.code == page.code))
    assert set(page.variants) <= shown


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_page_is_complete(page: Page) -> None:
    text = (FOLDER / f"{page.code}-{page.name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {page.name} ({page.code})\n\n```toml\n")

    headings = HEADING.findall(page.body)
    assert headings == [heading for heading in HEADINGS if heading in headings]
    assert set(HEADINGS) - OPTIONAL_HEADINGS <= set(headings)

    by_section: dict[str, list[Program]] = {}
    for program in programs(page):
        by_section.setdefault(program.section, []).append(program)
    example, *instead = by_section["Example"]
    assert example.own_marks
    assert example.report is not None
    assert "\nUse instead:\n" in page.body
    assert not any(program.own_marks for program in instead)
    assert (page.fix != "none") == (example.diff is not None)
    assert example.diff is not None or instead
    assert by_section["When not to use it"]
    assert not any(program.marks for program in by_section["When not to use it"])
    assert len([program for found in by_section.values() for program in found]) >= 5


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_metadata_reads_well(page: Page) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", page.name)
    assert len(page.summary) <= 100
    assert not page.summary.endswith(".")
    assert page.help.endswith(".")
    assert re.fullmatch(r"\d+\.\d+", page.since)
    assert page.references
    assert all(reference.startswith("https://") for reference in page.references)
    for name in ("", *page.variants):
        said = page.variant(name)
        assert said.message
        assert not said.message.endswith(".")
        assert len(said.message) <= 160


def test_every_check_has_its_page_and_every_page_its_check() -> None:
    assert set(PAGES) == {*RULES, *ENGINE_RULES}


def test_every_family_has_a_title() -> None:
    assert {page.code[3] for page in PAGES.values()} <= set(FAMILIES)


def test_names_differ() -> None:
    assert len({page.name for page in PAGES.values()}) == len(PAGES)


def test_table_is_current() -> None:
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == table()


def table() -> str:
    """The text of rules/README.md."""
    parts = [INTRODUCTION]
    for digit, title in FAMILIES.items():
        parts += [f"\n## {title}\n", HEAD]
        parts += [_row(page) for page in PAGES.values() if page.code[3] == digit]
    return "\n".join((*parts, ""))


def _row(page: Page) -> str:
    cells = (
        f"[{page.code}]({page.code}-{page.name}.md)",
        page.name,
        ", ".join(page.severities),
        "on" if page.default else "off",
        page.fix,
        page.measure or "no",
        page.summary,
    )
    return f"| {' | '.join(cells)} |"


INTRODUCTION = """\
# The rules

A rule is one page: what it finds, why that is bad, what to do instead, and when to leave it out.
The blocks of a page are its tests (`tests/test_pages.py`); `dlcheck rule CODE` shows it without
those that only tests need. This table is made by `python -m tests.test_pages`.

*Severity* lists a rule's own first, then those of its variants; *default* says whether it is on without being
selected; *fix* whether its findings offer an edit, and whether that is safe; *measure* the kind of experiment that can
confirm or refute it."""

HEAD = """\
| code | name | severity | default | fix | measure | what it finds |
| --- | --- | --- | --- | --- | --- | --- |"""


@pytest.mark.parametrize("code", sorted(code for code, registered in RULES.items() if registered.at_fact))
def test_what_a_rule_finds_at_its_fact_stands_there(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[tuple[str, str]] = []
    honest = RULES[code].check

    def watched(fact: Any) -> Iterator[Finding]:
        for found in honest(fact):
            places.append((fact.module.source.path, found.place.path))
            yield found

    monkeypatch.setitem(RULES, code, RULES[code]._replace(check=watched))
    for number, program in enumerate(programs(PAGES[code])):
        folder = tmp_path / str(number)
        for name, text in program.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        monkeypatch.chdir(folder)
        check(["."], Config(isolated=True))
    assert places
    assert all(fact == found for fact, found in places)


def show(page: Page) -> None:
    """Print what the text and diff blocks of a page can say, and why findings have no fix."""
    for number, program in enumerate(programs(page), 1):
        print(f"-- {number}, {program.section}")
        with tempfile.TemporaryDirectory() as place:
            os.chdir(place)
            report = run(program, Path(place))
            told = render(report, "concise", pages=PAGES, color=False).splitlines()
            reasons = [
                f"no fix in line {found.place.line}: {found.unfixed}" for found in report.findings if found.unfixed
            ]
            changes = changed_lines(program.files, fixed(program)) if report.findings else []
            os.chdir(FOLDER)  # Windows removes no current folder
        print(*filter(REPORTED.match, told), *reasons, *changes, "", sep="\n")


if __name__ == "__main__":
    os.chdir(FOLDER)
    if sys.argv[1:]:
        show(PAGES[sys.argv[1]])
    else:
        Path("README.md").write_text(table(), encoding="utf-8")
