"""The report formats: what people see, and what programs are promised."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcheck import __version__, pages
from dlcheck.engine import Report
from dlcheck.findings import (
    CONFIDENCES,
    SEVERITIES,
    Edit,
    Finding,
    Fix,
    Measurement,
    Place,
    ReportError,
    with_fingerprints,
)
from dlcheck.report import FORMATS, github, render
from dlcheck.report import sarif as sarif_module
from dlcheck.report.common import from_root
from dlcheck.report.concise import concise_lines
from dlcheck.report.frame import frame, width
from dlcheck.report.linehash import line_hashes
from dlcheck.source import Cell, Source

PAGES = pages.load()
SCHEMA = json.loads((Path(__file__).parent / "data" / "sarif-2.1.0.schema.json").read_text(encoding="utf-8"))

TRAIN = Source(
    "train.py",
    "/project/train.py",
    'from data import train_loader\n\ndevice = "cuda"\nfor images, labels in train_loader:\n'
    "    images = images.to(device)\n    labels = labels.to(device, non_blocking=True)\n",
)
DATA = Source("data.py", "/project/data.py", "\n" * 10 + "train_loader = DataLoader(ds, pin_memory=True)\n")
NOTEBOOK = Source(
    "nb.ipynb", "/project/nb.ipynb", "a = 1\nb = 2\nfor x in loader:\n    x.cuda()\n", cells=(Cell(1, 0), Cell(3, 2))
)


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)


def at(source: Source, text: str, message: str = "") -> Place:
    start = source.text.index(text)
    return source.place(start, start + len(text), message)


def blocking(**changes: Any) -> Finding:
    place = at(TRAIN, "images.to(device)")
    end = TRAIN.span(place)[1] - 1
    made = Finding(
        "DLC101",
        "blocking-transfer-of-pinned-batch",
        "warning",
        "high",
        place,
        "`images.to(device)` blocks although `train_loader` pins its batches",
        "Pass `non_blocking=True`.",
        (at(DATA, "pin_memory=True", "pinned here"),),
        Fix("safe", "Add `non_blocking=True`", (Edit(TRAIN.place(end, end), ", non_blocking=True"),)),
        "images = images.to(device)",
    )
    return replace(made, **changes)


def in_notebook(**changes: Any) -> Finding:
    place = at(NOTEBOOK, "x.cuda()")
    end = NOTEBOOK.span(place)[1] - 1
    fix = Fix("unsafe", "Add it", (Edit(NOTEBOOK.place(end, end), "non_blocking=True"),))
    related = (at(NOTEBOOK, "a = 1", "made here"),)
    made = Finding("DLC102", "non-blocking-without-pin", "info", "medium", place, "Not pinned", "", related, fix)
    return replace(made, **changes)


def unreadable() -> Finding:
    place = Place("old code.py", 3, 1, 3, 1)
    return Finding("DLC001", "unreadable-source", "error", "high", place, "Not checked: invalid syntax")


def measured(**changes: Any) -> Measurement:
    made = Measurement(
        verdict="confirmed",
        ratio=0.784,
        ci=(0.75, 0.81),
        a=0.351,
        b=0.275,
        unit="s/epoch",
        evidence="synthetic",
        date="2026-11-29T18:20:11Z",
        record="2a97516c354b6884",
        text="here on 29 Nov 2026: confirmed, saves 76 ms per epoch [64, 89] (epoch 351 -> 275 ms), synthetic workload",
    )
    return replace(made, **changes)


def report(*findings: Finding, errors: tuple[ReportError, ...] = (), files: int = 3) -> Report:
    sources = {source.path: source for source in (TRAIN, DATA, NOTEBOOK)}
    return Report(with_fingerprints(list(findings)), list(errors), files, sources)


def text(of: Report, form: str, color: bool = False) -> str:
    return render(of, form, pages=PAGES, color=color)


EVERYTHING = report(blocking(), in_notebook(), unreadable(), errors=(ReportError("base.json", 2, "not a baseline"),))


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_ends_in_one_newline(form: str) -> None:
    for found in (EVERYTHING, report()):
        assert re.search(r"[^\n]\n\Z", text(found, form))


def test_unknown_format() -> None:
    with pytest.raises(ValueError, match="unknown format 'xml'"):
        text(report(), "xml")


class TestFull:
    def test_code_related_places_help_and_fix(self) -> None:
        assert (
            text(report(blocking()), "full")
            == """\
warning[DLC101] blocking-transfer-of-pinned-batch: `images.to(device)` blocks although `train_loader` pins its batches
  --> train.py:5:14
   |
 4 | for images, labels in train_loader:
 5 |     images = images.to(device)
   |              ^^^^^^^^^^^^^^^^^
 6 |     labels = labels.to(device, non_blocking=True)
   |
  ::: data.py:11:31
   |
11 | train_loader = DataLoader(ds, pin_memory=True)
   |                               --------------- pinned here
   |
   = help: Pass `non_blocking=True`.
   = fix: Add `non_blocking=True` (safe)

Found 1 finding (1 warning).
`dlcheck rule DLC101` says why, and when not to follow it.
"""
        )

    def test_without_source(self) -> None:
        found = report(replace(unreadable(), related=(Place("gone.py", 1, 2, 1, 3, message="imported here"),)))
        assert text(found, "full").startswith(
            "error[DLC001] unreadable-source: Not checked: invalid syntax\n"
            " --> old code.py:3:1\n ::: gone.py:1:2: imported here\n\nFound"
        )

    def test_context_stays_in_the_cell(self) -> None:
        assert text(report(in_notebook(fix=None)), "full").startswith("""\
info[DLC102] non-blocking-without-pin: Not pinned
 --> nb.ipynb:cell 3:2:5
  |
1 | for x in loader:
2 |     x.cuda()
  |     ^^^^^^^^
  |
 ::: nb.ipynb:cell 1:1:1
  |
1 | a = 1
  | ----- made here

Found""")

    def test_nothing_found(self) -> None:
        assert text(report(), "full") == "No findings in 3 files.\n"
        assert text(report(files=1), "concise") == "No findings in 1 file.\n"

    def test_quiet(self) -> None:
        for form in ("full", "concise"):
            assert render(report(), form, pages=PAGES, color=False, quiet=True) == ""
            told = render(EVERYTHING, form, pages=PAGES, color=False, quiet=True)
            assert text(EVERYTHING, form).startswith(told)
            assert told.endswith("error: base.json:2: not a baseline\n")

    def test_what_the_baseline_holds_is_counted(self) -> None:
        found = report()
        found.known = [blocking()]
        assert text(found, "full") == "No findings in 3 files; 1 more in the baseline.\n"

    def test_errors_that_are_no_findings(self) -> None:
        found = report(errors=(ReportError("base.json", 2, "not a baseline"), ReportError("", 0, "no cache")))
        assert text(found, "full").startswith("error: base.json:2: not a baseline\n\nerror: no cache\n\n")

    def test_fixes_are_named_with_their_applicability(self) -> None:
        told = text(report(blocking(), in_notebook()), "full")
        assert re.findall(r"= fix: (.*)", told) == ["Add it (unsafe)", "Add `non_blocking=True` (safe)"]

    def test_hint_names_the_most_serious_rule(self) -> None:
        assert "`dlcheck rule DLC001` says" in text(EVERYTHING, "full")

    def test_colours_only_where_wanted(self) -> None:
        for form in FORMATS:
            assert "\x1b" not in text(EVERYTHING, form)
        colored = text(EVERYTHING, "full", color=True)
        assert "\x1b[1;33mwarning[DLC101]\x1b[0m" in colored
        assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == text(EVERYTHING, "full")

    def test_escape_sequences_of_the_code_do_not_reach_the_terminal(self) -> None:
        source = Source("evil.py", "/evil.py", 'x = "\x1b[2J\u202e"; f(x)\x0c\n')
        start = source.text.index("f(x)")
        finding = blocking(place=source.place(start, start + 4), related=(), fix=None, message="\x1b[2J\nf(\x07)")
        found = report(finding)
        found.sources["evil.py"] = source
        shown = text(found, "full")
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", shown)
        assert 'x = "␛[2J\ufffd"; f(x)␌' in shown
        assert ": ␛[2J f(␇)" in shown
        assert "::" not in text(found, "concise").splitlines()[0]


class TestMeasured:
    """What a record says of a finding, in each format."""

    def test_full_has_a_line_below_the_finding(self) -> None:
        found = report(blocking(measurement=measured()))
        assert text(found, "full").splitlines()[-6:-2] == [
            "   = help: Pass `non_blocking=True`.",
            "   = fix: Add `non_blocking=True` (safe)",
            f"   = measured: {measured().text}",
            "",
        ]

    def test_concise_says_nothing(self) -> None:
        assert text(report(blocking(measurement=measured())), "concise") == text(report(blocking()), "concise")

    def test_json_has_nine_fields(self) -> None:
        (finding,) = json.loads(text(report(blocking(measurement=measured())), "json"))["findings"]
        assert finding["measurement"] == {
            "verdict": "confirmed",
            "ratio": 0.784,
            "ci": [0.75, 0.81],
            "a": 0.351,
            "b": 0.275,
            "unit": "s/epoch",
            "evidence": "synthetic",
            "date": "2026-11-29T18:20:11Z",
            "record": "2a97516c354b6884",
        }

    def test_json_without_figures(self) -> None:
        nothing = measured(verdict="error", ratio=None, ci=None, a=None, b=None, unit=None)
        (finding,) = json.loads(text(report(blocking(measurement=nothing)), "json"))["findings"]
        assert [finding["measurement"][key] for key in ("ratio", "ci", "a", "b", "unit")] == [None] * 5

    def test_sarif(self) -> None:
        (result,) = sarif(report(blocking(measurement=measured())))["results"]
        (finding,) = json.loads(text(report(blocking(measurement=measured())), "json"))["findings"]
        assert result["properties"]["measurement"] == finding["measurement"]
        assert "kind" not in result
        assert result["level"] == "warning"
        assert result["message"]["text"].endswith(f"\nmeasured: {measured().text}")

    @pytest.mark.parametrize(
        ("changes", "kind", "level"),
        [
            ({}, "pass", "none"),
            ({"here": False}, "pass", "none"),
            ({"outdated": True}, None, "warning"),
            ({"verdict": "refuted-harmful"}, None, "warning"),
            ({"verdict": "inconclusive"}, None, "warning"),
        ],
    )
    def test_sarif_passes_what_has_no_effect(self, changes: dict[str, Any], kind: str | None, level: str) -> None:
        told = measured(**{"verdict": "refuted-no-effect", **changes})
        (result,) = sarif(report(blocking(measurement=told)))["results"]
        assert (result.get("kind"), result["level"]) == (kind, level)

    def test_github(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
        lines = text(report(blocking(measurement=measured())), "github").splitlines()
        assert lines[0].endswith(f"%0Ameasured: {measured().text}")
        assert f"; measured: {measured().text} |" in (tmp_path / "summary.md").read_text()

    def test_gitlab_and_junit(self) -> None:
        found = report(blocking(measurement=measured()))
        (issue,) = json.loads(text(found, "gitlab"))
        assert issue["description"].endswith(f"pins its batches; measured: {measured().text}")
        assert issue["fingerprint"] == found.findings[0].fingerprint
        case = ElementTree.fromstring(text(found, "junit"))[0][0]
        assert (case[0].text or "").splitlines()[-1] == f"measured: {measured().text}"

    def test_what_was_hidden_is_counted_unless_quiet(self) -> None:
        found = report(blocking())
        found.refuted, found.known = [blocking(), in_notebook()], [blocking()]
        said = "Found 1 finding (1 warning); 1 more in the baseline; 2 more refuted by measurements on this machine."
        for form in ("full", "concise", "github"):
            assert said in text(found, form)
        assert "refuted" not in render(found, "full", pages=PAGES, color=False, quiet=True)

    @given(st.text())
    def test_any_text(self, said: str) -> None:
        found = report(blocking(measurement=measured(text=said)))
        for form in FORMATS:
            made = text(found, form)
            if form in ("json", "sarif", "gitlab"):
                json.loads(made)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", text(found, "full"))


class TestFrame:
    def rows(self, code: str, part: str, **options: Any) -> list[str]:
        source = Source("a.py", "/a.py", code)
        made = frame(source, at(source, part), context=options.pop("context", 0), mark="^")
        return [f"{row.bar}{row.text}{row.mark}".rstrip() if not row.elided else "..." + row.bar for row in made.rows]

    def test_tabs(self) -> None:
        assert self.rows("\tx\t= f(a)\n", "f(a)") == ["    x    = f(a)", "           ^^^^"]

    def test_wide_characters(self) -> None:
        assert self.rows('画像 = "🔥"; f(值)', "f(值)") == ['画像 = "🔥"; f(值)', "             ^^^^^"]

    def test_combining_characters(self) -> None:
        assert self.rows("e\u0301 = f(e\u0301)", "f(e\u0301)") == ["e\u0301 = f(e\u0301)", "    ^^^^"]

    def test_context_leaves_out_blank_lines(self) -> None:
        assert self.rows("\nf(a)\ng()\n", "f(a)", context=1) == ["f(a)", "^^^^", "g()"]

    def test_range_of_whole_lines(self) -> None:
        assert self.rows("if x:\n    f(\n        a,\n    )\n", "f(\n        a,\n    )") == [
            "/     f(",
            "|         a,",
            "|     )",
            "|_____^",
        ]

    def test_range_from_within_a_line(self) -> None:
        assert self.rows("x = f(\n    a,\n)\ny\n", "f(\n    a,\n)", context=1) == [
            "  x = f(",
            " _____^",
            "|     a,",
            "| )",
            "|_^",
            "  y",
        ]

    def test_long_range(self) -> None:
        code = "[\n" + "".join(f"    {n},\n" for n in range(20)) + "]\n"
        shown = self.rows(code, code.rstrip())
        assert shown == ["/ [", "|     0,", "|     1,", "|     2,", "...| ", "|     19,", "| ]", "|_^"]

    def test_range_that_ends_with_its_line(self) -> None:
        assert self.rows("f(a)\ng()\n", "f(a)\n") == ["f(a)", "^^^^"]

    def test_long_line_is_cut_around_the_marks(self) -> None:
        code = f"x = [{'1, ' * 500}f(a), {'2, ' * 500}]\n"
        line, marks = self.rows(code, "f(a)")
        assert len(line) <= 160
        assert line[marks.index("^") : marks.index("^") + 4] == "f(a)"
        assert line[0] == line[-1] == "…"

    def test_places_that_the_text_does_not_have(self) -> None:
        source = Source("a.py", "/a.py", "x\n")
        for place in (Place("a.py", 9, 1, 9, 2), Place("a.py", 0, 1, 0, 1), Place("a.py", 1, 1, 1, 2, cell=4)):
            assert not frame(source, place, context=1, mark="^").rows
        for place in (Place("a.py", 1, 9, 1, 12), Place("a.py", 1, 1, 7, 3), Place("a.py", 2, 1, 2, 1)):
            assert frame(source, place, context=1, mark="^").rows

    @given(st.text(max_size=60), st.integers(0, 60), st.integers(0, 60))
    def test_any_range_of_any_text(self, code: str, first: int, second: int) -> None:
        start, end = sorted((min(first, len(code)), min(second, len(code))))
        source = Source("a.py", "/a.py", code)
        rows = frame(source, source.place(start, end), context=1, mark="^").rows
        assert [row for row in rows if row.mark]
        assert not any("\n" in row.text or "\r" in row.text or "\x1b" in row.text for row in rows)
        assert all(width(row.text) <= 300 for row in rows)


class TestConcise:
    def test_lines(self) -> None:
        assert concise_lines(EVERYTHING.findings) == [
            "nb.ipynb:cell 3:2:5: DLC102 Not pinned",
            "old code.py:3:1: DLC001 Not checked: invalid syntax",
            "train.py:5:14: DLC101 `images.to(device)` blocks although `train_loader` pins its batches",
        ]

    def test_summary(self) -> None:
        assert text(EVERYTHING, "concise").splitlines()[3:] == [
            "error: base.json:2: not a baseline",
            "Found 3 findings (1 error, 1 warning, 1 info).",
        ]


class TestJson:
    def test_fixed_shape(self) -> None:
        found = report(blocking(), errors=(ReportError("old.py", 3, "broken"),))
        assert json.loads(text(found, "json")) == {
            "schema": "dlcheck.report/1",
            "version": __version__,
            "findings": [
                {
                    "code": "DLC101",
                    "rule": "blocking-transfer-of-pinned-batch",
                    "severity": "warning",
                    "confidence": "high",
                    "path": "train.py",
                    "line": 5,
                    "column": 14,
                    "end_line": 5,
                    "end_column": 31,
                    "cell": None,
                    "message": "`images.to(device)` blocks although `train_loader` pins its batches",
                    "help": "Pass `non_blocking=True`.",
                    "related": [
                        {
                            "path": "data.py",
                            "line": 11,
                            "column": 31,
                            "end_line": 11,
                            "end_column": 46,
                            "message": "pinned here",
                        }
                    ],
                    "fix": {
                        "applicability": "safe",
                        "message": "Add `non_blocking=True`",
                        "edits": [
                            {
                                "path": "train.py",
                                "line": 5,
                                "column": 30,
                                "end_line": 5,
                                "end_column": 30,
                                "replacement": ", non_blocking=True",
                            }
                        ],
                    },
                    "fingerprint": found.findings[0].fingerprint,
                    "measurement": None,
                }
            ],
            "errors": [{"path": "old.py", "line": 3, "message": "broken"}],
            "summary": {"files": 3, "error": 0, "warning": 1, "info": 0, "fixable": 1},
        }

    def test_notebook(self) -> None:
        (finding,) = json.loads(text(report(in_notebook()), "json"))["findings"]
        assert (finding["cell"], finding["line"], finding["column"]) == (3, 2, 5)
        assert finding["related"][0]["cell"] == 1
        assert finding["fix"]["edits"][0]["cell"] == 3

    def test_nothing_found(self) -> None:
        empty = json.loads(text(report(), "json"))
        assert empty["findings"] == empty["errors"] == []
        assert empty["summary"] == {"files": 3, "error": 0, "warning": 0, "info": 0, "fixable": 0}
        (finding,) = json.loads(text(report(unreadable()), "json"))["findings"]
        assert finding["fix"] is None
        assert finding["related"] == []


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings(part)


def sarif(of: Report) -> dict[str, Any]:
    """The only run of a report, after it has been validated."""
    document = json.loads(text(of, "sarif"))
    jsonschema.Draft4Validator(SCHEMA, format_checker=jsonschema.FormatChecker()).validate(document)
    (run,) = document["runs"]
    assert isinstance(run, dict)
    return run


class TestSarif:
    def test_valid(self) -> None:
        jsonschema.Draft4Validator.check_schema(SCHEMA)
        sarif(report())
        sarif(EVERYTHING)

    def test_what_github_requires(self) -> None:
        run = sarif(EVERYTHING)
        assert all(strings(run)), "empty strings are refused"
        rules = run["tool"]["driver"]["rules"]
        for rule in rules:
            assert 0 < len(rule["shortDescription"]["text"]) <= 1024
            assert 0 < len(rule["fullDescription"]["text"]) <= 1024
            assert rule["help"]["text"]
            assert rule["help"]["markdown"].startswith("## What it does")
            assert rule["defaultConfiguration"]["level"] in ("error", "warning", "note")
            assert rule["properties"]["precision"] in CONFIDENCES
            assert rule["properties"]["problem.severity"] in ("error", "warning", "recommendation")
            assert "## More cases" not in rule["help"]["markdown"]
            assert len(rule["properties"]["tags"]) <= 10
        for result in run["results"]:
            assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
            (location,) = result["locations"]
            region = location["physicalLocation"]["region"]
            assert min(region.values()) >= 1
            assert set(region) == {"startLine", "startColumn", "endLine", "endColumn"}
        assert run["columnKind"] == "unicodeCodePoints"

    def test_most_serious_first(self) -> None:
        assert [result["level"] for result in sarif(EVERYTHING)["results"]] == ["error", "warning", "note"]

    def test_one_result_in_full(self) -> None:
        (result,) = sarif(report(blocking()))["results"]
        physical = result["locations"][0]["physicalLocation"]
        assert physical == {
            "artifactLocation": {"uri": "train.py"},
            "region": {"startLine": 5, "startColumn": 14, "endLine": 5, "endColumn": 31},
        }
        assert result["partialFingerprints"] == {
            "primaryLocationLineHash": line_hashes(TRAIN.text)[4],
            "dlcheckFingerprint/v1": report(blocking()).findings[0].fingerprint,
        }
        (related,) = result["relatedLocations"]
        assert related["message"] == {"text": "pinned here"}
        assert related["physicalLocation"]["artifactLocation"] == {"uri": "data.py"}
        assert result["fixes"] == [
            {
                "description": {"text": "Add `non_blocking=True`"},
                "artifactChanges": [
                    {
                        "artifactLocation": {"uri": "train.py"},
                        "replacements": [
                            {
                                "deletedRegion": {"startLine": 5, "startColumn": 30, "endLine": 5, "endColumn": 30},
                                "insertedContent": {"text": ", non_blocking=True"},
                            }
                        ],
                    }
                ],
            }
        ]

    def test_notebook_falls_back_to_its_file(self) -> None:
        (result,) = sarif(report(in_notebook()))["results"]
        assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 1
        assert result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] == "cell 3:2:5"
        assert result["message"]["text"] == "Cell 3, line 2: Not pinned"
        assert result["partialFingerprints"]["primaryLocationLineHash"] == line_hashes(NOTEBOOK.text)[3]
        assert "fixes" not in result

    @pytest.mark.parametrize(
        ("path", "uri"),
        [
            ("a b/ü%#?.py", "a%20b/%C3%BC%25%23%3F.py"),
            ("c:d.py", "c%3Ad.py"),
            ("../up.py", "../up.py"),
            ("/abs/x.py", "file:///abs/x.py"),
            ("C:/x y.py", "file:///C:/x%20y.py"),
        ],
    )
    def test_uris(self, path: str, uri: str) -> None:
        finding = unreadable()
        (result,) = sarif(report(replace(finding, place=replace(finding.place, path=path))))["results"]
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri
        assert unquote(uri).removeprefix("file:///").endswith(path.removeprefix("/"))

    def test_notifications(self) -> None:
        assert sarif(report())["invocations"] == [{"executionSuccessful": True}]
        (invocation,) = sarif(report(errors=(ReportError("b.json", 2, "bad"), ReportError("", 0, "no"))))["invocations"]
        assert invocation["executionSuccessful"] is False
        assert [note["message"]["text"] for note in invocation["toolExecutionNotifications"]] == ["bad", "no"]

    def test_limits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert (sarif_module.MAX_RESULTS, sarif_module.MAX_RELATED) == (25_000, 100)
        monkeypatch.setattr(sarif_module, "MAX_RESULTS", 50)
        related = tuple(replace(blocking().related[0], line=line, end_line=line) for line in range(1, 200))
        run = sarif(report(*(in_notebook() for _ in range(50)), blocking(related=related)))
        assert len(run["results"]) == 50
        assert run["results"][0]["ruleId"] == "DLC101"
        assert len(run["results"][0]["relatedLocations"]) == 100

    def test_rule_without_a_page(self) -> None:
        (rule,) = sarif(report(blocking(code="XYZ900", rule="of-a-plugin")))["tool"]["driver"]["rules"]
        assert rule["shortDescription"]["text"] == "of a plugin."

    def test_brackets_of_a_message_are_no_link(self) -> None:
        (result,) = sarif(report(blocking(message="`f[0](1)` and [x]", help="")))["results"]
        assert result["message"]["text"] == "`f[0] (1)` and [x]"


class TestLineHash:
    """Published vectors: see data/README.md."""

    @pytest.mark.parametrize(
        ("code", "hashes"),
        [
            ("", ["c129715d7a2bc9a3:1"]),
            (
                " a\nb\n  \t\tc\n d",
                ["271789c17abda88f:1", "54703d4cd895b18:1", "180aee12dab6264:1", "a23a3dc5e078b07b:1"],
            ),
            (
                "Lorem ipsum dolor sit amet.\n" * 10,
                [f"a7f2ff13bc495cf2:{n}" for n in range(1, 7)]
                + ["a7f2ff1481e87703:1", "a9cf91f7bbf1862b:1", "55ec222b86bcae53:1", "cc97dc7b1d7d8f7b:1"]
                + ["c129715d7a2bc9a3:1"],
            ),
        ],
    )
    def test_vectors(self, code: str, hashes: list[str]) -> None:
        assert line_hashes(code) == hashes

    @pytest.mark.parametrize("newline", ["\n", "\r", "\r\n"])
    def test_newlines(self, newline: str) -> None:
        assert line_hashes(" hello; \t\nworld!!!\n\n\n  \t\tGreetings\n End\n".replace("\n", newline)) == [
            "e9496ae3ebfced30:1",
            "fb7c023a8b9ccb3f:1",
            "ce8ba1a563dcdaca:1",
            "e20e36e16fcb0cc8:1",
            "b3edc88f2938467e:1",
            "c8e28b0b4002a3a0:1",
            "c129715d7a2bc9a3:1",
        ]

    @given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=300))
    def test_agrees_with_the_definition(self, code: str) -> None:
        encoded = re.sub(r"\r\n|\r", "\n", code).encode("utf-16-le")
        units = [int.from_bytes(encoded[n : n + 2], "little") for n in range(0, len(encoded), 2)]
        units = [unit for unit in units if unit not in (9, 32)]
        starts = [0, *(n + 1 for n, unit in enumerate(units) if unit == 10)]
        units += [0xFFFF] + [0] * 100
        expected = []
        for start in starts:
            value = 0
            for unit in units[start : start + 100]:
                value = (value * 37 + unit) % 2**64
            expected.append(f"{value:x}")
        assert [one.partition(":")[0] for one in line_hashes(code)] == expected


class TestGithub:
    def test_commands_and_plain_lines(self) -> None:
        lines = text(EVERYTHING, "github").splitlines()
        assert lines[:3] == [
            (
                "::error title=dlcheck (DLC001),file=old code.py,line=3,col=1,endLine=3,endColumn=1"
                "::Not checked: invalid syntax"
            ),
            (
                "::warning title=dlcheck (DLC101),file=train.py,line=5,col=14,endLine=5,endColumn=31"
                "::`images.to(device)` blocks although `train_loader` pins its batches%0APass `non_blocking=True`."
            ),
            "::notice title=dlcheck (DLC102),file=nb.ipynb,line=1::cell 3, line 2: Not pinned",
        ]
        assert lines[3:6] == concise_lines(EVERYTHING.findings)

    def test_escaping(self) -> None:
        place = replace(blocking().place, path="a,b:c%.py")
        (command,) = github.commands([blocking(place=place, message="50%\r\nof: a, b", help="")])
        assert command.startswith("::warning title=dlcheck (DLC101),file=a%2Cb%3Ac%25.py,line=5,")
        assert command.endswith("::50%25%0D%0Aof: a, b")

    def test_no_escape_sequence_reaches_the_log(self) -> None:
        found = blocking(message="a \x1b[31mred\x1b[0m word", help="an \x1b]8;; link")
        (command,) = github.commands([found])
        assert "\x1b" not in command + github.step_summary(report(found))
        assert "a \u241b[31mred" in command

    def test_ten_of_each_kind_and_the_best_of_them(self) -> None:
        findings = [
            blocking(severity=severity, confidence=confidence, message=confidence)
            for severity in SEVERITIES
            for confidence in ("low", "medium", "high")
            for _ in range(4)
        ]
        commands = github.commands(findings)
        for kind in ("error", "warning", "notice"):
            of_kind = [command for command in commands if command.startswith(f"::{kind} ")]
            said = [command.rpartition("::")[2].partition("%0A")[0] for command in of_kind]
            assert said == ["high"] * 4 + ["medium"] * 4 + ["low"] * 2
        lines = text(report(*findings), "github").splitlines()
        assert sum(line.startswith("train.py:") for line in lines) == 36

    def test_a_path_is_no_command(self) -> None:
        place = replace(unreadable().place, path="::error::x")
        lines = text(report(replace(unreadable(), place=place)), "github").splitlines()
        assert [line for line in lines if line.startswith("::")] == github.commands(
            [replace(unreadable(), place=place)]
        )

    def test_step_summary(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = tmp_path / "summary.md"
        file.write_text("before\n")
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
        text(report(blocking(message="`a | b` <b>\nc"), unreadable()), "github")
        assert file.read_text().splitlines() == [
            "before",
            "### dlcheck",
            "",
            "Found 2 findings (1 error, 1 warning).",
            "",
            "| severity | rule | where | what |",
            "| --- | --- | --- | --- |",
            "| error | DLC001 unreadable-source | old code.py:3:1 | Not checked: invalid syntax |",
            "| warning | DLC101 blocking-transfer-of-pinned-batch | train.py:5:14 | `a \\| b` &lt;b> c |",
        ]

    def test_step_summary_that_cannot_be_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "folder"))
        assert "train.py:5:14" in text(report(blocking()), "github")

    def test_step_summary_stays_below_the_limit(self) -> None:
        made = github.step_summary(report(*(blocking(message="x" * 5000) for _ in range(400))))
        assert len(made.encode()) < 1_000_000
        assert re.search(r"\n\n\d+ more are in the log\.\n\Z", made)
        made = github.step_summary(report(*(blocking() for _ in range(1001))))
        assert made.endswith("\n\n1 more are in the log.\n")


class TestGitlab:
    def test_issues(self) -> None:
        issues = json.loads(text(EVERYTHING, "gitlab"))
        assert issues[2] == {
            "description": "DLC101 `images.to(device)` blocks although `train_loader` pins its batches",
            "check_name": "DLC101",
            "fingerprint": EVERYTHING.findings[2].fingerprint,
            "severity": "major",
            "location": {"path": "train.py", "lines": {"begin": 5, "end": 5}},
        }
        assert [issue["severity"] for issue in issues] == ["info", "critical", "major"]
        assert issues[0]["location"]["lines"] == {"begin": 1, "end": 1}
        assert json.loads(text(report(), "gitlab")) == []

    def test_fingerprints_are_unique(self) -> None:
        found = report(*(blocking() for _ in range(3)))
        found.findings = [replace(finding, fingerprint="same") for finding in found.findings]
        prints = [issue["fingerprint"] for issue in json.loads(text(found, "gitlab"))]
        assert len(set(prints)) == 3
        assert prints == [issue["fingerprint"] for issue in json.loads(text(found, "gitlab"))]

    def test_paths_from_the_root_of_the_checkout(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "sub").mkdir()
        monkeypatch.chdir(tmp_path / "sub")
        monkeypatch.setenv("CI_PROJECT_DIR", str(tmp_path))
        (issue,) = json.loads(text(report(blocking()), "gitlab"))
        assert issue["location"]["path"] == "sub/train.py"
        assert from_root("../../elsewhere.py", "CI_PROJECT_DIR") == "../../elsewhere.py"
        assert from_root("train.py", "GITHUB_WORKSPACE") == "train.py"


class TestJunit:
    def test_suites(self) -> None:
        root = ElementTree.fromstring(text(EVERYTHING, "junit"))
        assert root.attrib == {"name": "dlcheck", "tests": "4", "failures": "3", "errors": "1"}
        assert [suite.get("name") for suite in root] == ["nb.ipynb", "old code.py", "train.py", "dlcheck"]
        case = root[2][0]
        assert case.get("name") == "DLC101 blocking-transfer-of-pinned-batch train.py:5:14"
        assert case[0].tag == "failure"
        assert (case[0].text or "").endswith("pins its batches\nPass `non_blocking=True`.")

    def test_a_clean_run_is_a_passing_case(self) -> None:
        root = ElementTree.fromstring(text(report(), "junit"))
        assert [[case.tag for case in suite] for suite in root] == [["testcase"]]
        assert root.get("failures") == "0"
        assert root.get("tests") == "1"

    @given(st.text())
    def test_any_message_is_well_formed(self, message: str) -> None:
        root = ElementTree.fromstring(text(report(blocking(message=message, help="")), "junit"))
        assert len(root) == 1


@given(st.text(), st.text())
def test_any_text_in_any_format(message: str, path: str) -> None:
    finding = blocking(message=message, place=replace(blocking().place, path=path or "x"))
    for form in FORMATS:
        made = text(report(finding), form)
        if form in ("json", "sarif", "gitlab"):
            json.loads(made)
        if form in ("full", "concise"):
            made.encode("utf-8")
