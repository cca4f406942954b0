"""Records as JSON, on disk, and against the findings of a later run."""

from __future__ import annotations

import getpass
import json
import math
import os
import platform
import stat
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import EVIL, MACHINE, SOFTWARE, counted, failed, growing, hostile, several, timed
from strategies import PLAIN, values_of

from dlcheck.findings import Finding, Place, with_fingerprints
from dlcheck.harmless import printable
from dlcheck.measure import identity, record, store
from dlcheck.measure.record import Effect, Fact, Record
from dlcheck.measure.serial import RecordError, from_json, to_json

SCHEMA = json.loads((Path(store.__file__).parent / "measurement.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
HERE: Mapping[str, Any] = MACHINE["identity"]
ELSEWHERE = {**HERE, "gpus": ["NVIDIA H200"]}


def finding(
    path: str = "train.py", line: int = 3, statement: str = "loader = DataLoader(ds)", **changes: Any
) -> Finding:
    place = Place(path, line, 1, line, 9)
    made = Finding("DLC202", "missing-persistent-workers", "warning", "high", place, "m", statement=statement)
    return replace(made, **changes)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(tmp_path)


def record_of(found: Finding, root: str, **changes: Any) -> Record:
    """A record of a finding, as the measuring command makes it."""
    location = replace(
        timed().location,
        path=store.path_below(found.place.path, root),
        line=found.place.line,
        statement=store.statement_hash(found),
    )
    return timed(found.code, found.rule, fingerprint=store.key(found, root), location=location, **changes)


def load(root: str, **options: Any) -> store.Records:
    return store.load(root, **{"machine": HERE, "software": SOFTWARE, **options})


# JSON


@settings(max_examples=60, deadline=None)
@given(values_of(Record))
def test_what_is_written_is_what_is_read(made: Record) -> None:
    text = json.dumps(to_json(made), allow_nan=False)
    assert from_json(json.loads(text)) == made


DATED = st.datetimes().map(lambda when: when.isoformat(timespec="seconds") + "Z").filter(lambda text: text[0] in "12")


@settings(max_examples=60, deadline=None)
@given(values_of(Record), DATED, st.text(min_size=1))
def test_what_is_written_is_what_the_schema_says(made: Record, date: str, id_: str) -> None:
    made = replace(made, date=date, id=id_, machine={"identity": dict(HERE)})
    VALIDATOR.validate(json.loads(json.dumps(to_json(made), allow_nan=False)))


@pytest.mark.parametrize("made", [*several(), hostile()], ids=lambda made: made.verdict)
def test_samples(made: Record) -> None:
    document = json.loads(json.dumps(to_json(made)))
    assert from_json(document) == made
    if made.date != EVIL:
        VALIDATOR.validate(document)


def test_schema_is_one_and_names_every_field() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert set(SCHEMA["properties"]) == {"schema", *(one.name for one in fields(Record))}
    assert tuple(SCHEMA["properties"]["verdict"]["enum"]) == record.VERDICTS
    assert set(SCHEMA["properties"]["evidence"]["enum"]) == set(get_args(record.Evidence))
    assert set(SCHEMA["properties"]["experiment"]["enum"]) == set(get_args(record.Experiment))
    assert set(SCHEMA["$defs"]["metric"]["properties"]["kind"]["enum"]) == set(get_args(record.Kind))
    classes = ("location", "metric", "arm", "fact", "effect", "noise", "guard", "block")
    for name in classes:
        assert set(SCHEMA["$defs"][name]["properties"]) == {one.name for one in fields(getattr(record, name.title()))}
    assert set(SCHEMA["$defs"]["memory_point"]["properties"]) == {one.name for one in fields(record.MemoryPoint)}
    assert set(SCHEMA["$defs"]["identity"]["required"]) == set(identity.KEYS) == set(identity.identity())


def test_numbers_that_json_has_not() -> None:
    nothing = Effect(0.0, 0.0, math.nan, (-math.inf, math.inf), 0.0, (0.0, math.inf), 0.95, "rounds", 1, 1)
    made = timed(effect=nothing, model={"c": math.inf, "of": [math.nan]}, saves={"bytes": -math.inf})
    text = json.dumps(to_json(made), allow_nan=False)
    VALIDATOR.validate(json.loads(text))
    read = from_json(json.loads(text))
    assert read.effect is not None
    assert math.isnan(read.effect.ratio)
    assert read.effect.ci == (-math.inf, math.inf)
    assert read.effect.diff_ci == (0.0, math.inf)
    assert read.model == {"c": None, "of": [None]}


def test_what_json_has_no_type_for_becomes_text() -> None:
    made = timed(workload={"dataset": Fact({"kind": Path, "shape": (3, 224)}, "measured")})
    value = json.loads(json.dumps(to_json(made)))["workload"]["dataset"]["value"]
    assert value == {"kind": str(Path), "shape": [3, 224]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"schema": "dlcheck.measurement/2"},
            "a record of another version: dlcheck.measurement/2, not dlcheck.measurement/1",
        ),
        ({"schema": "dlcheck.report/1"}, "not a measurement record"),
        ({"schema": None}, "not a measurement record"),
        ({"schema": ["dlcheck.measurement/1"]}, "not a measurement record"),
        ({"verdict": "maybe"}, "verdict is not one of confirmed, "),
        ({"verdict": []}, "verdict is not one of confirmed, "),
        ({"location": {"path": "a.py", "line": 1}}, "location.column is not there"),
        ({"location": None}, "location is not an object"),
        ({"colour": 1}, "colour is not a field of this version"),
        ({"blocks": [{"round": 0, "arm": "A", "position": 0, "t": "1"}]}, "blocks.0.t is not a number"),
        ({"blocks": [{"round": True, "arm": "A", "position": 0, "t": 1}]}, "blocks.0.round is not a whole number"),
        ({"noise": {"ratio": 1, "ci": [1], "floor": 0}}, "noise.ci is not an interval: two numbers"),
        ({"arms": {"A": 3}}, "arms.A is not an object"),
        ({"reason": 3}, "reason is not text"),
        ({"cost": {"a\n\x1b[2J": "x"}}, "cost.a \u241b[2J is not a number"),
        ({"guards": {}}, "guards is not a list"),
        ({"cost": {"wall_s": 10**400}}, "cost.wall_s is not a number that can be calculated with"),
    ],
)
def test_what_is_no_record(change: dict[str, Any], said: str) -> None:
    document = {**to_json(timed()), **change}
    with pytest.raises(RecordError) as caught:
        from_json(document)
    assert said in str(caught.value)
    assert str(caught.value) == printable(str(caught.value))
    if isinstance(change.get("schema", ""), str) and "cost" not in change:
        assert not VALIDATOR.is_valid(document)


@pytest.mark.parametrize("document", [None, [], "x", 3, {}, {"schema": "dlcheck.measurement/1"}])
def test_other_documents(document: object) -> None:
    with pytest.raises(RecordError):
        from_json(document)


@given(PLAIN, st.sampled_from([one.name for one in fields(Record)]))
def test_any_value_in_any_field_is_read_or_refused(value: Any, name: str) -> None:
    said = ""
    try:
        made: Record | None = from_json({**to_json(timed()), name: value})
    except RecordError as error:
        made, said = None, str(error)
    assert made is not None or said
    assert said == printable(said)


# Files


def test_saved_and_found_again(root: str) -> None:
    found = finding()
    file = store.save(root, record_of(found, root))
    assert Path(file).parent == Path(root, ".dlcheck", "measurements")
    assert os.path.basename(file).startswith(f"DLC202-{store.key(found, root)}-")
    VALIDATOR.validate(json.loads(Path(file).read_text(encoding="utf-8")))
    stored = load(root).for_finding(found)
    assert stored is not None
    assert (stored.file, stored.here, stored.outdated) == (file, True, False)
    assert stored.record == record_of(found, root)
    assert load(root).problems == []


def test_saving_again_replaces(root: str) -> None:
    found = finding()
    first = store.save(root, record_of(found, root))
    second = store.save(root, record_of(found, root, verdict="inconclusive", seed=2))
    assert first == second
    assert os.listdir(os.path.dirname(first)) == [os.path.basename(first)]
    assert [one.record.verdict for one in load(root)] == ["inconclusive"]


def test_a_write_that_fails_leaves_nothing(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = store.save(root, record_of(finding(), root))
    before = Path(file).read_bytes()

    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        store.save(root, record_of(finding(), root, verdict="error"))
    assert os.listdir(os.path.dirname(file)) == [os.path.basename(file)]
    assert Path(file).read_bytes() == before


def test_no_folder_of_the_user_stands_in_a_record(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("USERPROFILE", "/home/ada")
    made = timed(
        rerun=f"/home/ada/.venv/bin/python {root}/train.py --out /home/adam/x",
        reason="no module in /home/ada/lib",
        side_effects={"writes": [f"{root}/ckpt.pt", "/home/ada"], "/home/ada": 1},
    )
    told = store.read(store.save(root, made))
    assert told.rerun == "~/.venv/bin/python ./train.py --out /home/adam/x"
    assert told.reason == "no module in ~/lib"
    assert told.side_effects is not None
    assert told.side_effects["writes"] == ["./ckpt.pt", "~"]


def test_which_machine_is_said_without_a_name(root: str) -> None:
    text = Path(store.save(root, replace(timed(), machine={}))).read_text(encoding="utf-8")
    told = json.loads(text)["machine"]["identity"]
    assert set(told) == {"cpu", "cores", "gpus", "os"}
    assert platform.node() not in [told["cpu"], told["os"], *told["gpus"]]
    assert getpass.getuser() not in [told["cpu"], told["os"], *told["gpus"]]
    (stored,) = store.load(root, software={})
    assert stored.here


def test_hostile_names_make_plain_files(root: str) -> None:
    file = store.save(root, timed("../../x", fingerprint="/etc/\0passwd"))
    assert Path(file).parent == Path(root, ".dlcheck", "measurements")
    assert len(list(load(root))) == 1
    assert len(list(load(root, machine=ELSEWHERE))) == 1
    store.save(root, replace(hostile(), fingerprint="0" * 32))
    assert load(root).problems == []


def test_without_records(root: str) -> None:
    assert list(load(root)) == []
    assert load(root).problems == []
    Path(root, ".dlcheck").mkdir()
    Path(root, ".dlcheck", "measurements").write_text("")
    (line,) = load(root).problems
    assert line.startswith(".dlcheck/measurements: no measurements read: ")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a measurement record: Expecting value"),
        (b"{", "not a measurement record: Expecting property name"),
        (b"\xff\xfe\x00", "not a measurement record: "),
        (b"[" * 100_000, "not a measurement record: "),
        (b'{"schema": "dlcheck.measurement/9"}', "a record of another version: dlcheck.measurement/9"),
        (b'{"schema": "other/1"}', "not a measurement record"),
        (b'{"schema": "dlcheck.measurement/1"}', "not a valid record: id is not there"),
        (b'{"a": NaN}', "not a measurement record: NaN is no JSON"),
        (b"9" * 5000, "not a measurement record"),
    ],
)
def test_files_that_are_no_records(root: str, data: bytes, said: str) -> None:
    good = store.save(root, record_of(finding(), root))
    Path(good).with_name("bad.json").write_bytes(data)
    records = load(root)
    (line,) = records.problems
    assert line.startswith(f".dlcheck/measurements/bad.json: {said}")
    assert "\n" not in line
    assert records.for_finding(finding()) is not None


def test_what_is_no_file(root: str) -> None:
    folder = Path(store.save(root, record_of(finding(), root))).parent
    (folder / "folder.json").mkdir()
    (folder / "gone.json").symlink_to(folder / "nowhere")
    (folder / "README.md").write_text("notes")
    (folder / "half.json.77.tmp").write_text("{")
    assert [line.partition(": ")[2] for line in load(root).problems] == [
        "a folder, not a file",
        "No such file or directory",
    ]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(root: str) -> None:
    file = Path(store.save(root, record_of(finding(), root)))
    file.chmod(0)
    assert load(root).problems == [f".dlcheck/measurements/{file.name}: Permission denied"]
    file.chmod(stat.S_IRUSR)


def test_too_large(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save(root, record_of(finding(), root))
    monkeypatch.setattr(store, "MAX_BYTES", 100)
    (line,) = load(root).problems
    assert line.endswith(": too large for a measurement record")


# Against findings


def test_a_finding_is_known_from_every_folder(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("src").mkdir()
    above = with_fingerprints([finding("src/train.py"), finding("src/train.py", 9)])
    store.save(root, record_of(above[1], root))
    monkeypatch.chdir("src")
    below = with_fingerprints([finding("train.py", 5), finding("train.py", 8)])
    records = load(root)
    assert records.for_finding(below[0]) is None
    assert records.for_finding(below[1]) is not None
    # That an equal one before it is not shown any more changes nothing.
    assert records.attached(below[1]).measurement is not None


def test_this_machine_wins(root: str) -> None:
    found = finding()
    store.save(root, record_of(found, root, verdict="inconclusive"))
    store.save(root, record_of(found, root, machine={"identity": ELSEWHERE}, date="2027-01-01T00:00:00Z"))
    told = {
        which: load(root, machine=machine).for_finding(found) for which, machine in (("here", HERE), ("gpu", ELSEWHERE))
    }
    assert [one and (one.record.verdict, one.here) for one in told.values()] == [
        ("inconclusive", True),
        ("confirmed", True),
    ]
    third = load(root, machine={**HERE, "cores": 64}).for_finding(found)
    assert third is not None
    assert (third.record.verdict, third.here) == ("confirmed", False)
    assert third.line.startswith(
        "on another machine (AMD EPYC 7763, 2 cores, NVIDIA H200) on 1 Jan 2027: confirmed, saves "
    )


@pytest.mark.parametrize(
    ("software", "outdated"),
    [
        ({"torch": "2.13.1", "python": "3.11.9"}, False),
        ({"torch": "2.14.0", "python": "3.11.7"}, True),
        ({"torch": "2.13.0+cu130", "python": "3.14.0"}, True),
        ({"python": "3.11"}, False),
        ({}, False),
    ],
)
def test_other_versions_make_it_outdated(root: str, software: dict[str, str], outdated: bool) -> None:
    store.save(root, record_of(finding(), root, verdict="refuted-no-effect"))
    measurement = load(root, software=software).attached(finding()).measurement
    assert measurement is not None
    assert measurement.outdated is outdated
    assert measurement.refutes is measurement.passes is not outdated
    assert measurement.text.endswith("; outdated: measured with torch 2.13.0+cpu on Python 3.11.7") is outdated


def test_a_changed_statement_makes_it_stale(root: str) -> None:
    store.save(root, record_of(finding(), root))
    records = load(root)
    assert records.for_finding(finding(line=40)) is not None
    assert records.for_finding(finding(statement="loader=DataLoader( ds )")) is not None
    assert records.for_finding(finding(statement="loader = DataLoader(other)")) is None
    # The same fingerprint by accident or by hand: the hash of the statement decides.
    (stored,) = records
    store.save(root, replace(stored.record, location=replace(stored.record.location, statement="another")))
    assert load(root).for_finding(finding()) is None


def test_stale_records_are_pruned_and_no_others(root: str) -> None:
    kept, gone, unseen = finding("a.py"), finding("b.py"), finding("c.py")
    for name in ("a.py", "b.py", "c.py"):
        Path(name).touch()
    files_ = [store.save(root, record_of(one, root)) for one in (kept, gone, unseen)]
    deleted = store.save(root, record_of(finding("deleted.py"), root))
    checked = {str(Path("a.py").resolve()), str(Path("b.py").resolve())}
    records = load(root)
    # A run that did not look for this rule: what it knows is which files are there.
    assert [one.file for one in records.prune([kept], checked, {"DLC101"})] == [deleted]
    assert [one.file for one in records.prune([kept], checked, {"DLC202"})] == [files_[1]]
    assert {one.file for one in records} == {one.file for one in load(root)} == {files_[0], files_[2]}


def test_measurement_of_each_kind() -> None:
    of = {one.verdict: store.Stored(one, "", True, False).measurement for one in several() if one.effect}
    assert of["confirmed"].confirms
    assert not of["confirmed"].refutes
    assert of["refuted-no-effect"].refutes
    assert of["refuted-harmful"].refutes
    assert not of["refuted-harmful"].passes
    assert not of["inconclusive"].refutes
    for made in (counted(), failed()):
        told = store.Stored(made, "", True, False).measurement
        assert (told.ratio, told.ci, told.a, told.b, told.unit) == (None,) * 5
        assert made.reason in told.text
    memory = store.Stored(growing(), "", True, False).measurement
    assert memory.unit == "bytes"
    open_ = timed(effect=Effect(0.0, 1.0, math.inf, (0.5, math.inf), -1.0, (-2.0, 0.0), 0.95, "rounds", 2, 1))
    told = store.Stored(open_, "", True, False).measurement
    assert (told.ratio, told.ci) == (None, (0.5, None))


# Which machine


def test_the_same_machine_has_one_fingerprint() -> None:
    assert identity.fingerprint(identity.identity()) == identity.fingerprint(identity.identity())
    assert identity.fingerprint({**HERE, "load": 3}) == identity.fingerprint(HERE)
    for key, value in (("cpu", "x"), ("cores", 3), ("gpus", ["x"]), ("os", "Darwin")):
        assert identity.fingerprint({**HERE, key: value}) != identity.fingerprint(HERE)


def test_machines_in_words() -> None:
    assert identity.described(HERE) == "AMD EPYC 7763, 2 cores"
    assert identity.described({"cpu": "x", "cores": 1, "gpus": ["A", "B", "A"]}) == "x, 1 core, 2 x A, B"
    assert identity.described({"gpus": 3, "os": "Linux"}) == "Linux"
    assert identity.described({}) == ""
