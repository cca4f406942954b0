"""The report page: what is in it, and what can never be."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import EVIL, counted, failed, growing, hostile, several, timed
from strategies import values_of

from dlcheck.harmless import printable
from dlcheck.measure import markup, page, words
from dlcheck.measure.record import Effect, Fact, Metric, Record

VOID = {"meta", "br", "hr", "img", "input", "link", "base"}
RAW = {"script", "style"}


class Html(HTMLParser):
    """A page as a browser takes it: elements with attributes and text; what is not nested well is an error."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.raw: list[tuple[str, dict[str, str], str]] = []  # scripts and styles
        self.text = ""
        self.rows: list[list[str]] = []  # of all tables
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        assert len(found) == len(attrs), f"an attribute twice in <{tag}>"
        self.elements.append((tag, found))
        if tag not in VOID:
            self.open.append(tag)
        if tag in RAW:
            self.raw.append((tag, found, ""))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in RAW:
            tag, attributes, text = self.raw.pop()
            self.raw.append((tag, attributes, text + data))
            return
        self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def scripts(self) -> list[str]:
        return [text for tag, attributes, text in self.raw if tag == "script" and "type" not in attributes]

    @property
    def data(self) -> Any:
        (text,) = (text for _, attributes, text in self.raw if attributes.get("type") == "application/json")
        return json.loads(text)


def parse(records: Sequence[Record], **options: Any) -> Html:
    return Html(page.render(records, **options))


def check_safety(made: Html) -> None:
    """Whatever stands in the records: only our scripts, our elements, and nothing from elsewhere."""
    assert made.scripts == [(markup.ASSETS / name).read_text(encoding="utf-8") for name in page.SCRIPTS]
    assert len(made.all("script")) == len(made.scripts) + 1
    assert {tag for tag, _ in made.elements} <= {
        "html", "head", "meta", "title", "style", "body", "a", "header", "h1", "h2", "h3", "p", "ul", "li", "span",
        "main", "section", "table", "caption", "thead", "tbody", "tr", "th", "td", "div", "figure", "figcaption",
        "details", "summary", "strong", "pre", "code", "noscript", "script", "dl", "dt", "dd",
    }  # fmt: skip
    for _, attributes in made.elements:
        assert not [
            name for name in attributes if name.startswith("on") or name in ("src", "style", "srcset", "action")
        ]
        assert attributes.get("href", "#").startswith("#")
    ids = [attributes["id"] for _, attributes in made.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {attributes["href"][1:] for attributes in made.all("a")} <= set(ids)
    (style,) = (text for tag, _, text in made.raw if tag == "style")
    assert "url(" not in style
    assert "@import" not in style


def test_the_policy_allows_its_own_scripts_and_nothing_else() -> None:
    made = parse(several())
    (policy,) = (one["content"] for one in made.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert parts["default-src"] == parts["base-uri"] == parts["form-action"] == "'none'"
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in made.scripts]
    assert parts["script-src"].split() == [f"'sha256-{digest}'" for digest in digests]
    assert set(parts) == {"default-src", "script-src", "style-src", "base-uri", "form-action"}
    # A policy counts from where it stands on: before anything that it is to rule.
    assert [name for name, _ in made.elements][:4] == ["html", "head", "meta", "meta"]


@pytest.mark.parametrize(
    "records",
    [[], [timed()], several(), [hostile()], [failed()] * 30],
    ids=["none", "one", "several", "hostile", "thirty"],
)
def test_pages_are_well_formed_and_load_nothing(records: list[Record]) -> None:
    if not records:
        made = parse(records)
        assert made.scripts == []
        assert "There is nothing to show." in made.text
        return
    check_safety(parse(records, end_to_end=records[0]))


def test_hostile_text_is_shown_and_is_nothing_but_text() -> None:
    text = page.render([hostile()], title=EVIL, end_to_end=hostile())
    text.encode("utf-8")
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "\u202e" not in text
    assert "\x1b" not in text
    made = Html(text)
    check_safety(made)
    assert printable(EVIL) in made.text
    assert made.data["records"][0]["label"].startswith(printable(EVIL))
    assert printable(EVIL) in {cell for row in made.rows for cell in row}


@settings(max_examples=40, deadline=None)
@given(st.lists(values_of(Record), max_size=3), st.none() | values_of(Record))
def test_any_records_make_a_page(records: list[Record], whole: Record | None) -> None:
    text = page.render(records, end_to_end=whole)
    text.encode("utf-8")
    made = Html(text)
    if records:
        check_safety(made)
        assert len(made.data["records"]) == len(records)


def test_all_is_said_without_a_script() -> None:
    records = several()
    made = parse(records)
    table = {row[1]: row for row in made.rows if len(row) == 6 and row[0] != "Verdict"}
    for record in records[:7]:
        row = table[f"{record.code} {record.rule}"]
        assert words.VERDICTS[record.verdict] in row[0]
        assert row[2] == f"{record.location.path}:{record.location.line}:{record.location.column}"
        assert row[3].replace(" →\u00a0", " -> ") == (words.change(record) or record.reason)
        assert row[5] == "35.5"
        assert record.rerun in made.text
    for record in records:
        for block in record.blocks:
            cells = [str(block.round + 1), block.arm, str(block.position + 1), f"{block.t:.4g}"]
            assert any(row[:4] == cells for row in made.rows)
    assert ["other-tenants", "warn", "somebody waited for a CPU 5 % of the time"] in made.rows
    assert ["usable cores", "2"] in made.rows
    assert ["torch", "2.13.0+cpu"] in made.rows
    assert ["epochs", "90 (user)"] in made.rows
    assert any(row[0] == "A1 against A" for row in made.rows)
    assert [one for one in made.all("figure") if "hidden" not in one] == []  # of figures there is nothing to see


def test_verdicts_come_first_to_last() -> None:
    made = parse(list(reversed(several())))
    order = [one["verdict"] for one in made.data["records"]]
    assert order == sorted(order, key=list(words.VERDICTS).index)
    assert order[0] == "confirmed"


def test_what_shaped_a_workload_has_words_and_units() -> None:
    known: dict[str, Any] = {
        "cpu_s": 2.855e-05,
        "wait_s": 1.217e-07,
        "variation": 5.201,
        "sample_bytes": 3080,
        "size": 4096,
    }
    known |= {"page_cache": {"files": 3, "resident": 0.5}}
    made = replace(timed(), workload={name: Fact(value, "measured") for name, value in known.items()})
    rows = parse([made]).rows
    for row in (
        ["CPU time of a sample", "28.6 µs (measured)"],
        ["waiting in a sample (disk, network)", "122 ns (measured)"],
        ["standard deviation of a sample's time", "520 % of its mean (measured)"],
        ["size of a sample", "3.1 kB (measured)"],
        ["samples", "4096 (measured)"],
        ["files in the page cache", "50 % of 3 (measured)"],
    ):
        assert row in rows


def test_end_to_end() -> None:
    assert "Suggestions together" not in page.render([timed()])
    whole = timed("ALL", "all", a=0.351, b=0.24)
    text = parse([timed()], end_to_end=whole).text
    assert words.change(whole).replace(" -> ", " →\u00a0") in text.split("Verdicts", 1)[0]


def test_figures_are_of_what_there_is() -> None:
    def figures(record: Record) -> list[str]:
        return [one["data-figure"] for one in parse([record]).all("figure")]

    assert figures(timed()) == ["forest", "blocks", "time"]
    assert figures(timed(parts=False)) == ["forest", "blocks"]
    assert figures(growing()) == ["forest", "memory"]
    assert figures(counted()) == figures(failed()) == ["forest"]


def test_figures_and_table_agree() -> None:
    made = timed()
    assert made.effect is not None
    (drawn,) = parse([made]).data["records"]
    assert (drawn["ratio"], drawn["low"], drawn["high"]) == (made.effect.ratio, *made.effect.ci)
    assert drawn["unit"] == "ms per epoch"
    assert [one["t"] for one in drawn["blocks"]] == [pytest.approx(1000 * block.t) for block in made.blocks]
    assert [(one["arm"], one["name"]) for one in drawn["parts"]] == [
        ("A", "until first batch"),
        ("B", "until first batch"),
        ("A", "waiting for batches"),
        ("B", "waiting for batches"),
    ]


def test_more_is_better_points_the_same_way() -> None:
    made = timed(metric=Metric("copies", "GB/s", "ratio", lower_is_better=False), a=10, b=40)
    assert made.effect is not None
    (drawn,) = parse([made]).data["records"]
    assert drawn["ratio"] == pytest.approx(1 / made.effect.ratio)
    assert drawn["low"] < drawn["ratio"] < drawn["high"] < 1


def test_what_has_no_place_in_a_figure_is_left_to_the_tables() -> None:
    effect = Effect(0.0, 1.0, math.nan, (-math.inf, math.inf), -1.0, (-math.inf, 0.0), 0.95, "blocks", 2, 1)
    (drawn,) = parse([timed(effect=effect)]).data["records"]
    assert (drawn["ratio"], drawn["low"], drawn["high"]) == (None, None, None)


def test_machines_are_told_apart() -> None:
    other = {"identity": {"cpu": "Grace", "cores": 72, "gpus": ["GH200"], "os": "Linux"}}
    one = parse([timed(), timed(line=40)])
    two = parse([timed(), timed(line=40, machine=other)])
    assert "on AMD EPYC 7763, 2 cores" in one.text
    assert "on 2 machines" in two.text
    assert "Grace, 72 cores, GH200" in two.text


def test_libraries_are_as_published_and_their_licences_are_in_the_page() -> None:
    licences = (markup.ASSETS / "LICENSES.txt").read_text(encoding="utf-8")
    digests = dict(re.findall(r"^sha256  ([0-9a-f]{64})  (\S+)$", licences, re.MULTILINE))
    for digest, name in digests.items():
        assert hashlib.sha256((markup.ASSETS / name).read_bytes()).hexdigest() == digest
    assert set(digests.values()) == {name for name in page.SCRIPTS if name != "page.js"}
    assert "Permission to use, copy, modify" in parse([timed()]).text


def test_libraries_cannot_end_their_element() -> None:
    for name in page.SCRIPTS:
        text = (markup.ASSETS / name).read_text(encoding="utf-8")
        assert not re.search(r"</script|<!--", text, re.IGNORECASE)


# In a browser

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
@pytest.mark.parametrize(
    ("records", "drawn"),
    [
        ([timed()], {"forest", "blocks", "time"}),
        ([growing()], {"forest", "memory"}),
        ([failed()], set()),
        ([hostile()], {"forest", "blocks", "time"}),
        (several(), {"forest"}),
    ],
    ids=["timed", "memory", "error", "hostile", "folded"],
)
def test_a_browser_draws_the_figures(records: list[Record], drawn: set[str], tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page.render(records), encoding="utf-8")
    options = ("no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking")
    command = [str(CHROMIUM), "--headless", *(f"--{option}" for option in options)]
    command += ["--disable-component-update", "--disable-sync", "--enable-logging=stderr", "--virtual-time-budget=3000"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", file.as_uri()]
    run = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120, check=True)
    figures = re.findall(r'<figure data-figure="(\w+)"([^>]*)>(.*?)</figure>', run.stdout, re.DOTALL)
    assert {
        name for name, attributes, inside in figures if 'role="img"' in inside and "hidden" not in attributes
    } == drawn
    assert all("hidden" in attributes for name, attributes, _ in figures if name not in drawn)
    # A script that the policy stops, or that fails, says so here.
    assert "CONSOLE" not in run.stderr


def test_the_wording_is_that_of_reports() -> None:
    made = replace(timed(), reason="")
    assert words.outcome(made) in parse([made]).text.replace(" →\u00a0", " -> ")
