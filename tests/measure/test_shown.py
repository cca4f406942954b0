"""What `check` makes of records that lie in a project."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from samples import timed

from dlcheck import cli, engine
from dlcheck.config import Config
from dlcheck.measure import store, words
from dlcheck.measure.record import Record, Verdict

ROOT = Path(__file__).resolve().parents[2]
FAULTY = """\
from torch.utils.data import DataLoader

loader = DataLoader([1, 2, 3], persistent_workers=True)
"""


class Session(NamedTuple):
    status: int
    out: str
    err: str


Console = Callable[..., Session]


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Console:
    """Run the program in this process, in a project with one fault."""
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "DLCHECK_OUTPUT_FORMAT", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(store, "installed", lambda: {"torch": "2.13.0", "python": "3.11.7"})
    Path("pyproject.toml").touch()
    Path("train.py").write_text(FAULTY)

    def run(*arguments: str) -> Session:
        monkeypatch.setattr(sys, "argv", ["dlcheck", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return Session(int(caught.value.code or 0), *capsys.readouterr())

    return run


def record(verdict: Verdict = "confirmed", path: str = "train.py", **changes: Any) -> Record:
    """A record of the fault in a file."""
    (finding,) = engine.check([path], Config()).findings
    root = os.getcwd()
    location = replace(timed().location, path=path, line=3, statement=store.statement_hash(finding))
    changes = {"machine": {}, "fingerprint": store.key(finding, root), "location": location, **changes}
    return timed(finding.code, finding.rule, verdict=verdict, **changes)


def measured(console: Console, *arguments: str) -> list[Any]:
    told = json.loads(console("--output-format", "json", *arguments).out)
    return [finding["measurement"] and finding["measurement"]["verdict"] for finding in told["findings"]]


def test_a_record_is_shown(console: Console) -> None:
    assert measured(console) == [None]
    made = record()
    store.save(os.getcwd(), made)
    assert f"\n  = measured: here on 29 Nov 2026: {words.outcome(made)}\n" in console().out
    (finding,) = json.loads(console("--output-format", "json").out)["findings"]
    assert finding["measurement"]["record"] == made.id
    assert finding["measurement"]["unit"] == "s/epoch"
    Path("train.py").write_text("# a line more\n" + FAULTY)
    assert measured(console) == ["confirmed"]
    Path("train.py").write_text(FAULTY.replace("3]", "4]"))
    assert measured(console) == [None]


def test_from_another_folder_and_from_standard_input(
    console: Console, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    broken = tmp_path_factory.mktemp("elsewhere") / "broken.py"
    broken.write_text("import torch\nx = (")
    Path("src").mkdir()
    Path("train.py").rename("src/train.py")
    store.save(os.getcwd(), record(path="src/train.py"))
    monkeypatch.chdir("src")
    assert measured(console) == ["confirmed"]
    monkeypatch.chdir("/")
    assert measured(console, str(broken)) == [None]


def test_isolated_ignores_records(console: Console) -> None:
    store.save(os.getcwd(), record())
    Path(".dlcheck", "measurements", "bad.json").write_text("{")
    session = console("--isolated", "--output-format", "json")
    assert json.loads(session.out)["findings"][0]["measurement"] is None
    assert session.err == ""


def test_files_that_are_no_records_are_warnings(console: Console) -> None:
    store.save(os.getcwd(), record())
    for name, text in (("bad.json", "{"), ("new.json", '{"schema": "dlcheck.measurement/2"}')):
        Path(".dlcheck", "measurements", name).write_text(text)
    session = console()
    assert session.status == 1
    assert "measured: here" in session.out
    first, second = session.err.splitlines()
    assert first.startswith("dlcheck: warning: .dlcheck/measurements/bad.json: not a measurement record: ")
    assert second == (
        "dlcheck: warning: .dlcheck/measurements/new.json: a record of another version: dlcheck.measurement/2, "
        "not dlcheck.measurement/1"
    )


@pytest.mark.parametrize("verdict", ["refuted-no-effect", "refuted-harmful"])
def test_hide_refuted(console: Console, verdict: Verdict) -> None:
    store.save(os.getcwd(), record(verdict))
    assert console().status == 1
    session = console("--hide-refuted")
    assert session.status == 0
    assert session.out == "No findings in 1 file; 1 more refuted by measurements on this machine.\n"
    assert console("--hide-refuted", "-q").out == ""
    assert measured(console, "--hide-refuted") == []


@pytest.mark.parametrize("verdict", ["confirmed", "inconclusive", "not-measurable-here", "suggestion-breaks", "error"])
def test_what_is_not_refuted_is_not_hidden(console: Console, verdict: Verdict) -> None:
    store.save(os.getcwd(), record(verdict))
    session = console("--hide-refuted")
    assert session.status == 1
    assert "refuted by" not in session.out


def test_what_another_machine_or_version_refuted_is_not_hidden(console: Console) -> None:
    elsewhere = {"identity": {"cpu": "x", "cores": 1, "gpus": [], "os": "Linux"}}
    file = store.save(os.getcwd(), record("refuted-no-effect", machine=elsewhere))
    assert measured(console, "--hide-refuted") == ["refuted-no-effect"]
    Path(file).unlink()
    store.save(os.getcwd(), record("refuted-no-effect", software={"torch": "2.9.0", "python": "3.11.0"}))
    assert measured(console, "--hide-refuted") == ["refuted-no-effect"]
    assert "; outdated: measured with torch 2.9.0 on Python 3.11.0" in console("--hide-refuted").out


def test_a_refuted_finding_stays_in_a_baseline_that_is_written(console: Console) -> None:
    store.save(os.getcwd(), record("refuted-no-effect"))
    console("--hide-refuted", "--baseline", "base.json", "--update-baseline")
    assert len(json.loads(Path("base.json").read_text())["findings"]) == 1


@pytest.mark.parametrize(
    ("verdict", "options", "status"),
    [
        (None, (), 0),
        ("confirmed", (), 1),
        ("confirmed", ("--fail-on", "error"), 1),
        ("confirmed", ("--fail-on", "never"), 0),
        ("confirmed", ("--exit-zero",), 0),
        ("inconclusive", (), 0),
        ("refuted-harmful", (), 0),
        ("suggestion-breaks", (), 0),
    ],
)
def test_fail_on_confirmed(console: Console, verdict: Verdict | None, options: tuple[str, ...], status: int) -> None:
    if verdict:
        store.save(os.getcwd(), record(verdict))
    assert console().status == 1
    session = console("--fail-on-confirmed", *options)
    assert session.status == status
    assert "train.py:3" in session.out  # shown in any case


def test_fail_on_confirmed_narrows_fail_on_and_no_more(console: Console) -> None:
    Path("tests").mkdir()
    Path("train.py").rename("tests/train.py")  # where findings are infos
    store.save(os.getcwd(), record(path="tests/train.py"))
    assert console("--fail-on-confirmed").status == 0
    assert console("--fail-on-confirmed", "--fail-on", "info").status == 1


def test_fail_on_confirmed_counts_what_another_machine_confirmed(console: Console) -> None:
    elsewhere = {"identity": {"cpu": "x", "cores": 1, "gpus": ["NVIDIA H200"], "os": "Linux"}}
    store.save(os.getcwd(), record(machine=elsewhere, software={"torch": "2.9.0", "python": "3.11.0"}))
    assert console("--fail-on-confirmed").status == 1


def test_fail_on_confirmed_without_records_says_so(console: Console) -> None:
    session = console("--fail-on-confirmed")
    assert session.status == 0
    assert session.err == "dlcheck: warning: --fail-on-confirmed: no measurement speaks of any finding\n"
    store.save(os.getcwd(), record("inconclusive"))
    assert console("--fail-on-confirmed").err == ""
    session = console("--fail-on-confirmed", "--isolated")
    assert session.status == 2
    assert "--isolated ignores" in session.err


def test_fail_on_confirmed_does_not_pass_what_cannot_be_read(console: Console) -> None:
    Path("train.py").write_text(FAULTY + "def (:\n")
    assert console("--fail-on-confirmed").status == 1


def test_the_documentation_speaks_of_what_there_is(console: Console) -> None:
    text = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
    (shown,) = (json.loads(block) for block in re.findall(r"^```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    store.save(os.getcwd(), record())
    (finding,) = json.loads(console("--output-format", "json").out)["findings"]
    assert list(shown["measurement"]) == list(finding["measurement"])
    help_ = console("check", "--help").out
    assert all(option in help_ for option in ("--hide-refuted", "--fail-on-confirmed", "--isolated"))
    for verdict, words_ in words.VERDICTS.items():
        assert f"| `{verdict}` | {words_} |" in text
    for evidence, words_ in words.WORKLOADS.items():
        assert f"| `{evidence}` | {words_} |" in text


def test_records_cost_nothing_where_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "train.py").write_text(FAULTY)
    code = "import sys\nfrom dlcheck.cli import main\ntry: main()\nexcept SystemExit: pass\nprint(*sys.modules)"

    def loaded() -> list[str]:
        command = [sys.executable, "-c", code, "train.py"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        return run.stdout.splitlines()[-1].split()

    assert not [name for name in loaded() if name.startswith("dlcheck.measure")]
    (tmp_path / ".dlcheck" / "measurements").mkdir(parents=True)
    modules = loaded()
    assert "dlcheck.measure.store" in modules
    assert not {"torch", "psutil", "dlcheck.measure.page"} & set(modules)
