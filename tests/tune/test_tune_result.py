"""What comes of a search: the record and its schema, the table, the page."""

from __future__ import annotations

import html
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcheck.advise.tuning import page, result, text
from dlcheck.advise.tuning.asking import Shown
from dlcheck.advise.tuning.choice import choose
from dlcheck.advise.tuning.progress import bar
from dlcheck.advise.tuning.proving import STEP, as_now, kept, settled, ways
from dlcheck.advise.tuning.result import Proof, Result, Row, Start, to_json
from dlcheck.advise.tuning.setting import Setting, made
from dlcheck.measure.record import Effect, Guard, Verdict

SCHEMA = json.loads((Path(result.__file__).parent / "tuning.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
HELD = {"pss": 400_000_000, "workers": 90_000_000, "parent": 300_000_000, "shm": 12_000_000}
HOSTILE = '<script>alert(1)</script> "x" \u202e \x1b[31m'


def row(setting: Setting, *blocks: float, failure: str = "", stage: str = "") -> Row:
    return Row(setting, list(blocks), [one / 3 for one in blocks], [0.03] * len(blocks), HELD, failure, stage)


def effect(ratio: float = 0.6) -> Effect:
    return Effect(0.1, 0.1 * ratio, ratio, (ratio - 0.02, ratio + 0.02), 0.04, (0.03, 0.05), 0.978, "rounds", 4, 1)


def made_result(
    failure: str = "RuntimeError: DataLoader worker is killed by signal: Bus error.", pin: bool = False
) -> Result:
    four = made(4, 2, pin, method="fork")
    rows = [
        row(Setting(0), 0.1, 0.102),
        row(made(2, 2, False, method="fork"), 0.07, 0.071),
        row(four, 0.06, 0.0605),
        row(made(4, 4, False, method="fork"), 0.0601),
        row(made(8, 4, False, method="fork"), failure=failure, stage="block"),
    ]
    found = choose({one.setting: one.blocks for one in rows if one.ran})
    chosen = replace(four, persistent=True)
    return Result(
        asked={"factory": "data:make"},
        evidence="factory",
        date="2026-11-30T12:00:00Z",
        version="0.1.0",
        present=Setting(0),
        choice=found,
        chosen=chosen,
        step={"kind": "idle-wait", "s": 0.05, "source": "user"},
        workload={"batch_size": 16, "batches": 100, "batch_bytes": 1 << 20, "dataset": "Work"},
        grid=5,
        removed=["1 setting removed by memory: ..."],
        rows=rows,
        starts=[Start(four, 0.2, 0.3), Start(chosen, failure="OSError: none")],
        proof=Proof("confirmed", "step: B/A 0.600", STEP, effect(), {"one thread": effect(0.99)}, [Guard("a", "pass")]),
        machine={"identity": {"cpu": "CPU", "cores": 2, "gpus": [], "os": "Linux"}, "usable_cores": 2},
        cost={"budget_s": 60.0, "wall_s": 50.0},
        rerun="dlcheck tune --factory data:make",
    )


EVERY = {
    "whole": made_result(),
    "pinned": made_result(pin=True),
    "hostile": made_result(HOSTILE),
    "empty": Result(asked={}),
    "interrupted": replace(made_result(), proof=None, chosen=None, choice=None, status="interrupted"),
    "unending": replace(
        made_result(), proof=Proof("inconclusive", "", STEP, replace(effect(), ci=(-math.inf, math.inf)))
    ),
}


@pytest.mark.parametrize("name", EVERY)
def test_a_record_is_what_the_schema_says(name: str) -> None:
    document = to_json(EVERY[name])
    VALIDATOR.validate(document)
    json.dumps(document, allow_nan=False)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert set(SCHEMA["required"]) == set(SCHEMA["properties"])


@pytest.mark.parametrize("name", EVERY)
def test_a_page_needs_nothing_and_lets_nothing_in(name: str) -> None:
    written = page.render(EVERY[name])
    assert "<script" not in written
    assert "script-src 'none'" in written
    assert not re.search(r"(?:src|href)=\"(?!#)", written)
    assert "\u202e" not in written
    assert "\x1b" not in written
    assert written.count("<table") == written.count("</table>")
    assert written.count("<section") == written.count("</section>")


def cells(written: str) -> list[list[str]]:
    heat = re.search(r'<table class="heat">.*?</table>', written, re.DOTALL)
    assert heat is not None
    rows = re.findall(r"<tr>(.*?)</tr>", heat[0], re.DOTALL)
    return [
        [html.unescape(re.sub("<[^>]*>", "", one)).strip() for one in re.findall(r"<t[hd].*?</t[hd]>", each)]
        for each in rows
    ]


def test_the_heat_map_is_of_prefetch_where_nothing_is_pinned() -> None:
    assert cells(page.render(EVERY["whole"])) == [
        ["workers", "prefetch 2", "prefetch 4"],
        ["0", "101 ●"],
        ["2", "70.5", ""],
        ["4", "60.2 ★", "60.1"],
        ["8", "", "failed"],
    ]


def test_the_heat_map_is_of_pinned_memory_where_both_were_tried() -> None:
    assert cells(page.render(EVERY["pinned"])) == [
        ["workers", "not pinned", "pinned"],
        ["0", "101 ●", ""],
        ["2", "70.5", ""],
        ["4", "60.1", "60.2 ★"],
        ["8", "failed", ""],
    ]


def test_text_says_what_to_write_and_why() -> None:
    said = text.render(EVERY["whole"])
    assert "take num_workers=4, prefetch_factor=2, persistent_workers=True, pin_memory=False" in said
    assert "against what the loader has now: confirmed, step 100 -> 60 ms" in said
    assert "failed: RuntimeError: DataLoader worker is killed by signal: Bus error." in said
    assert "start and the end of an epoch" in said
    assert re.search(r"^\*  4 workers, prefetch 2 +60\.2 ", said, re.MULTILINE)
    assert re.search(r"^=  no workers ", said, re.MULTILINE)


def test_rows_say_how_workers_start_where_that_differs() -> None:
    failed = row(made(2, 2, False, method="spawn"), failure="AttributeError: no", stage="block")
    both = replace(made_result(), rows=[row(made(2, 2, False, method="fork"), 0.1), failed], present=failed.setting)
    said = text.render(both)
    assert "2 workers, prefetch 2, fork " in said
    assert "=  2 workers, prefetch 2, spawn  failed: AttributeError: no" in said
    assert both.now is failed


def test_what_was_stopped_says_so_by_itself() -> None:
    stopped = row(made(2, 2, False, method="fork"), failure="stopped: it took 3 GB", stage="bound")
    said = text.render(replace(made_result(), rows=[stopped]))
    assert "2 workers, prefetch 2  stopped: it took 3 GB" in said


@pytest.mark.parametrize("name", EVERY)
def test_text_is_plain(name: str) -> None:
    assert "\x1b" not in text.render(EVERY[name])


def test_a_search_that_found_nothing_says_so() -> None:
    assert "nothing is chosen: no setting could be run" in text.render(EVERY["empty"])
    assert "incomplete: interrupted" in text.render(EVERY["interrupted"])


@pytest.mark.parametrize(
    ("judged", "chosen", "advice"),
    [
        ("confirmed", made(4, 2, False, method="fork"), "take"),
        ("refuted-no-effect", made(1, 2, False, method="fork"), "take"),
        ("refuted-no-effect", made(4, 2, False, method="fork"), "keep"),
        ("refuted-harmful", made(4, 2, False, method="fork"), "keep"),
        ("inconclusive", made(4, 2, False, method="fork"), "perhaps"),
        ("error", made(4, 2, False, method="fork"), "perhaps"),
        ("not-measurable-here", made(4, 2, False, method="fork"), "take"),
        ("refuted-no-effect", made(2, 2, False, method="fork"), "keep"),
    ],
)
def test_advice(judged: Verdict, chosen: Setting, advice: Literal["take", "keep", "perhaps"]) -> None:
    found = replace(made_result(), present=made(2, 2, False, method="fork"), chosen=chosen, proof=Proof(judged, ""))
    assert found.advice == advice
    assert text.headline(found, chosen, made(2, 2, False, method="fork")).startswith(advice)


def test_records_are_kept_without_folders(tmp_path: Path) -> None:
    made_one = replace(made_result(), notes=[f"{tmp_path}/data.py is slow"])
    file = result.save(str(tmp_path), made_one)
    assert Path(file).parent == tmp_path / ".dlcheck" / "tuning"
    written = json.loads(Path(file).read_text(encoding="utf-8"))
    VALIDATOR.validate(written)
    assert written["notes"] == ["./data.py is slow"]


def test_the_bar_fits_into_its_line() -> None:
    shown = Shown("2 workers, prefetch 4", 3, 12, row(Setting(0), 0.1), 54.2)
    assert bar(shown, 200) == (
        "###......... 3/12 2 workers, prefetch 4  best so far 100 ms/step (no workers)  54 s left at most"
    )
    assert len(bar(shown, 30)) < 30


# How workers are started and kept

FORK = made(2, 2, False, False, "fork")


def timed(*seconds: tuple[str, bool, float | None]) -> list[Start]:
    return [Start(replace(FORK, method=method, persistent=keeps), took) for method, keeps, took in seconds]


def test_of_all_ways_that_of_now_comes_first() -> None:
    own = as_now(made(2, 2, False), made(4, 8, True, True, "spawn"), "fork")
    assert own == made(2, 2, False, True, "spawn")
    assert ways(own, ["spawn", "fork"], "auto")[0] == own
    assert as_now(made(2, 2, False), Setting(0), "forkserver").method == "forkserver"
    assert {one.persistent for one in ways(own, ["fork"], "off")} == {False}


@pytest.mark.parametrize(
    ("starts", "batches", "taken"),
    [
        ([("fork", False, 0.05), ("fork", True, 0.005)], 1000, ("fork", False)),  # 50 ms of 100 s
        ([("fork", False, 0.05), ("fork", True, 0.005)], 5, ("fork", True)),  # of half a second
        ([("fork", False, 2.0), ("fork", True, 0.05), ("spawn", True, 0.01)], 20, ("fork", True)),
        ([("fork", False, None), ("fork", True, None), ("spawn", False, 1.0)], 20, ("spawn", False)),
        ([("fork", False, 2.0), ("fork", True, 0.05)], None, ("fork", False)),
        ([], 20, ("fork", False)),
    ],
)
def test_starts_are_changed_where_an_epoch_gets_cheaper(
    starts: list[tuple[str, bool, float | None]], batches: int | None, taken: tuple[str, bool]
) -> None:
    chosen, _ = kept(FORK, timed(*starts), 0.1, batches)
    assert (chosen.method, chosen.persistent) == taken


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["fork", "spawn"]), st.booleans(), st.floats(1e-4, 5)), min_size=1, max_size=4),
    st.floats(1e-4, 1),
    st.integers(1, 1000),
)
def test_no_start_that_is_left_is_cheaper_by_more_than_the_margin(
    starts: list[tuple[str, bool, float]], step: float, batches: int
) -> None:
    known = {one.setting: one.seconds or 0.0 for one in timed(*starts)}
    chosen, _ = kept(FORK, [Start(one, took) for one, took in known.items()], step, batches)
    least = min(known.values()) + (batches - 1) * step
    assert known[chosen] + (batches - 1) * step <= least * 1.05 * (1 + 1e-9)


def test_what_is_settled_needs_no_other_start() -> None:
    assert settled(timed(("fork", False, 0.04)), 0.1, 100)
    assert not settled(timed(("fork", False, 2.0)), 0.1, 11)
    assert not settled(timed(("fork", False, 0.0)), 0.1, None)
    assert not settled(timed(("fork", False, None)), 0.1, 100)


def test_an_id_stands_for_a_search() -> None:
    one: Any = made_result()
    assert one.id == made_result().id
    assert one.id != replace(one, date="2026-11-30T12:00:01Z").id
