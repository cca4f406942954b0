"""Console sessions."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from dlcheck import __version__, cli, engine, pages
from dlcheck.findings import ReportError

ROOT = Path(__file__).resolve().parent.parent
FAULTY = """\
from torch.utils.data import DataLoader

loader = DataLoader([1, 2, 3], persistent_workers=True)
"""
CLEAN = FAULTY.replace("persistent_workers=True", "num_workers=2")
SHOWN = ["--output-format", "concise"]


class Session(NamedTuple):
    status: int
    out: str
    err: str


Console = Callable[..., Session]


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Console:
    """Run the program in this process, in an empty project."""
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "DLCHECK_OUTPUT_FORMAT", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").touch()

    def run(*arguments: str, stdin: str = "") -> Session:
        monkeypatch.setattr(sys, "argv", ["dlcheck", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return Session(int(caught.value.code or 0), *capsys.readouterr())

    return run


def plant(**texts: str) -> None:
    for name, text in texts.items():
        file = Path(name.replace("__", "/") + ".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def process(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dlcheck", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


# check


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["."],
        ["check"],
        ["check", "."],
        ["train.py"],
        ["--no-cache"],
        ["--isolated", "train.py"],
        ["check", "train.py"],
    ],
)
def test_check_is_the_default(arguments: list[str], console: Console) -> None:
    plant(train=FAULTY)
    session = console(*arguments, *SHOWN)
    assert session.status == 1
    assert session.out.startswith("train.py:3:")
    assert ": DLC203 " in session.out
    assert not session.err


def test_a_file_named_as_a_command(console: Console) -> None:
    Path("rules").write_text(FAULTY)
    assert console("rules").status == 0
    assert console("check", "rules", *SHOWN).out.startswith("rules:3:")
    assert console("./rules", *SHOWN).out.startswith("rules:3:")


def test_nothing_found(console: Console) -> None:
    plant(train=CLEAN)
    session = console(*SHOWN)
    assert (session.status, session.err) == (0, "")
    assert len(session.out.splitlines()) == 1
    assert console(*SHOWN, "--quiet").out == ""


def test_quiet_prints_findings_only(console: Console) -> None:
    plant(train=FAULTY)
    session = console(*SHOWN, "-q")
    assert session.out.splitlines() == console(*SHOWN).out.splitlines()[:1]
    assert "Found" not in console("-q").out


def test_verbose_says_what_is_read(console: Console) -> None:
    plant(train=FAULTY)
    Path("dlcheck.toml").write_text("")
    assert "dlcheck.toml" in console("-v").err


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--fail-on", "never"], 0),
        (["--fail-on", "info"], 1),
        (["--exit-zero"], 0),
        (["--ignore", "DLC203"], 0),
        (["--ignore", "DLC2"], 0),
        (["--ignore", "worker-options-without-workers"], 0),
        (["--select", "DLC101,DLC102"], 0),
        (["--select", "DLC101", "--select", "DLC203"], 1),
        (["--select", "ALL", "--extend-ignore", "DLC2,DLC1"], 0),
        (["--per-file-ignores", "train.py:DLC203,DLC101"], 0),
        (["--per-file-ignores", "other.py:DLC203"], 1),
        (["--exclude", "train.py"], 0),
        (["--extend-exclude", "*.py"], 0),
        (["--target-torch", "2.4", "--target-python", "3.12"], 1),
        (["--min-confidence", "high"], 1),
    ],
)
def test_options(arguments: list[str], status: int, console: Console) -> None:
    plant(train=FAULTY)
    session = console(*arguments)
    assert (session.status, session.err) == (status, "")


def test_excluded_files_are_checked_where_named(console: Console) -> None:
    plant(venv__train=FAULTY)
    assert console().status == 0
    assert console("venv/train.py").status == 1
    assert console("venv/train.py", "--force-exclude").status == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["chekc"], "no command and no file `chekc`; did you mean `check`?"),
        (["check", "--nonsense"], "--nonsense"),
        (["--select", "DLC999"], "--select: there is no rule `DLC999`"),
        (["--select", "missing-pin-memori"], "did you mean `missing-pin-memory`?"),
        (["--fail-on", "fatal"], "--fail-on"),
        (["--output-format", "xml"], "--output-format"),
        (["--target-torch", "new"], "`target-torch` must be a version"),
        (["--per-file-ignores", "DLC101"], "PATTERN:RULES"),
        (["--stdin-filename", "a.py", "train.py"], "--stdin-filename goes with `-`"),
        (["--update-baseline"], "there is no baseline"),
        (["rule"], "CODE_OR_NAME"),
        (["rule", "DLC999"], "there is no rule `DLC999`"),
        (["rule", "missing-pin"], "did you mean `missing-pin-memory`?"),
        (["new-rule", "DLC9", "some-name"], "three digits"),
        (["new-rule", "DLC999", "Name"], "hyphens"),
        (["--output-file", "none/report.txt"], "none/report.txt: No such file"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str, console: Console) -> None:
    session = console(*arguments)
    assert session.status == 2
    assert words in session.err
    assert "Traceback" not in session.err


def test_unknown_rules_besides_the_selected_ones_are_only_told(console: Console) -> None:
    plant(train=FAULTY)
    session = console("--extend-select", "missing-pin-memori", *SHOWN)
    assert session.status == 1
    assert session.err.startswith("dlcheck: warning: --extend-select: there is no rule `missing-pin-memori`; did you")


def test_wrong_configuration(console: Console) -> None:
    plant(train=FAULTY)
    Path("pyproject.toml").write_text("[tool.dlcheck]\nselct = []\n")
    session = console()
    assert (session.status, session.out) == (2, "")
    assert session.err == "dlcheck: error: pyproject.toml: unknown key `selct`; did you mean `select`?\n"
    assert console("--isolated").status == 1


def test_wrong_configuration_of_a_folder_below(console: Console) -> None:
    plant(train=FAULTY, sub__a=FAULTY)
    Path("sub/dlcheck.toml").write_text("select = 1\n")
    session = console()
    assert session.status == 2
    assert session.err.startswith("dlcheck: error: sub/dlcheck.toml: `select` must be a list")


def test_configuration_is_in_force(console: Console) -> None:
    plant(train=FAULTY)
    Path("pyproject.toml").write_text('[tool.dlcheck]\nfail-on = "never"\noutput-format = "concise"\n')
    session = console()
    assert session.status == 0
    assert session.out.startswith("train.py:3:")


def test_unreadable_files(console: Console) -> None:
    plant(train=FAULTY, broken="import torch\ndef f(:\n")
    os.mkfifo("pipe.py")
    session = console(".", "pipe.py", *SHOWN, "-q")
    assert session.status == 1
    assert [line.split(" ")[:2] for line in session.out.splitlines()] == [
        ["broken.py:2:7:", "DLC001"],
        ["pipe.py:1:1:", "DLC001"],
        ["train.py:3:32:", "DLC203"],
    ]


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--ignore", "DLC001"],
        ["--select", "DLC203"],
        ["--fail-on", "never"],
        ["--exit-zero"],
        ["--quiet"],
        ["--statistics"],
        ["--output-file", "report.txt"],
        ["--output-format", "json"],
        ["--diff"],
        ["--fix"],
        ["--fix-only"],
        ["--show-files"],
        ["--isolated"],
        ["--baseline", "known.json", "--update-baseline"],
        ["--measure", "--no-records", "--budget", "1", "--total", "1"],
    ],
    ids=" ".join,
)
def test_a_path_where_nothing_is(options: list[str], console: Console) -> None:
    plant(train=CLEAN)
    session = console("nope.py", "train.py", "no/such.py", *options)
    assert session.status == 2
    told = session.out if "no such" in session.out else session.err
    assert told.count("no such file or folder") == 2
    assert "nope.py" in told
    assert "no/such.py" in told
    assert "DLC001" not in session.out


@pytest.mark.parametrize("command", [["measure"], ["baseline"], ["config"]], ids=" ".join)
def test_a_path_where_nothing_is_for_other_commands(command: list[str], console: Console) -> None:
    session = console(*command, "nope.py")
    assert session.status == 2
    assert "nope.py: no such file or folder" in session.out + session.err
    assert "to measure" not in session.err


def test_beside_a_path_where_nothing_is_the_others_are_checked(console: Console) -> None:
    plant(train=FAULTY)
    Path("lost.py").symlink_to("nowhere.py")
    session = console("nope.py", "train.py", "lost.py", *SHOWN, "-q")
    assert session.status == 2
    assert [line.split(" ")[:2] for line in session.out.splitlines()] == [
        ["lost.py:1:1:", "DLC001"],
        ["train.py:3:32:", "DLC203"],
        ["error:", "nope.py:"],
    ]


# Each writes a file; what stands in for TARGET is the file.
WRITING = {
    "report": ["--output-file", "TARGET"],
    "report of a fix": ["--fix", "--output-file", "TARGET"],
    "report of a measurement": ["--measure", "--output-file", "TARGET"],
    "page": ["--measure", "--report", "TARGET"],
    "page of the command": ["measure", "--report", "TARGET"],
    "baseline": ["baseline", "--baseline", "TARGET"],
    "more of a baseline": ["--update-baseline", "--baseline", "TARGET"],
    "less of a baseline": ["--prune-baseline", "--baseline", "TARGET"],
}


@pytest.mark.parametrize("words", WRITING.values(), ids=WRITING)
@pytest.mark.parametrize(
    "target",
    ["other.py", "nb.ipynb", "Old.PY", "link.txt", "script", "requirements-dev.txt", "pyproject.toml", "./train.py"],
)
def test_no_source_is_overwritten(words: list[str], target: str, console: Console) -> None:
    plant(train=FAULTY)
    for name in ("other.py", "nb.ipynb", "Old.PY", "script", "requirements-dev.txt"):
        Path(name).write_text(FAULTY)
    Path("link.txt").symlink_to("other.py")
    before = {file.name: file.read_bytes() for file in Path().iterdir() if file.is_file()}
    session = console(*(target if word == "TARGET" else word for word in words), "train.py", "./script")
    assert session.status == 2
    assert session.out == ""
    (line,) = session.err.splitlines()
    assert "would overwrite " in line
    assert line.endswith(", which is read: name another file")
    assert {file.name: file.read_bytes() for file in Path().iterdir() if file.is_file()} == before


def test_a_baseline_is_not_overwritten_by_a_report(console: Console) -> None:
    plant(train=FAULTY)
    assert console("baseline", "train.py").status == 0
    session = console("train.py", "--baseline", ".dlcheck-baseline.json", "--output-file", ".dlcheck-baseline.json")
    assert session.status == 2
    assert "--output-file would overwrite .dlcheck-baseline.json" in session.err


def test_what_is_no_source_is_written_again(console: Console) -> None:
    plant(train=FAULTY)
    Path("report.txt").write_text("of yesterday")
    assert console("train.py", *SHOWN, "--output-file", "report.txt").status == 1
    assert Path("report.txt").read_text().startswith("train.py:3:")


def test_the_stub_of_a_rule_overwrites_nothing(console: Console) -> None:
    Path("ABC101-big-batches.md").write_text("mine")
    assert console("new-rule", "ABC101", "big-batches", "--directory", ".").status == 2
    assert Path("ABC101-big-batches.md").read_text() == "mine"


def test_internal_errors_exit_with_2(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    error = ReportError("a.py", 0, "internal error: KeyError: 1")
    monkeypatch.setattr(engine, "check", lambda *_args, **_options: engine.Report([], [error], 1, {}))
    session = console(*SHOWN)
    assert session.status == 2
    assert "a.py: internal error: KeyError: 1" in session.out
    session = console("--output-format", "json", "--exit-zero")
    assert session.status == 2
    assert json.loads(session.out)["errors"] == [{"path": "a.py", "line": 0, "message": "internal error: KeyError: 1"}]
    assert "a.py: internal error: KeyError: 1" in session.err


def test_standard_input(console: Console) -> None:
    assert console("-", *SHOWN, stdin=FAULTY).out.startswith("-:3:")
    assert console("--stdin-filename", "sub/train.py", *SHOWN, stdin=FAULTY).out.startswith("sub/train.py:3:")
    assert console("-", "--stdin-filename", "train.py", *SHOWN, stdin=CLEAN).status == 0
    assert console("-", "--stdin-filename", "venv/a.py", "--force-exclude", stdin=FAULTY).status == 0


def test_standard_input_sees_the_project(console: Console) -> None:
    plant(options="KEEP = True\n", train=CLEAN)
    text = FAULTY.replace("=True", "=KEEP").replace("\n\n", "\nfrom options import KEEP\n")
    assert ": DLC203 " in console("-", "--stdin-filename", "train.py", *SHOWN, stdin=text).out


# Output


def test_output_file(console: Console) -> None:
    plant(train=FAULTY)
    session = console("--output-format", "json", "--output-file", "report.json")
    assert (session.status, session.out, session.err) == (1, "", "")
    assert json.loads(Path("report.json").read_text())["summary"]["error"] == 1


def test_output_format_of_the_environment(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(train=FAULTY)
    monkeypatch.setenv("DLCHECK_OUTPUT_FORMAT", "json")
    assert json.loads(console().out)["schema"] == "dlcheck.report/1"
    assert console(*SHOWN).out.startswith("train.py:3:")
    monkeypatch.setenv("DLCHECK_OUTPUT_FORMAT", "xml")
    session = console()
    assert session.status == 2
    assert "DLCHECK_OUTPUT_FORMAT must be one of full, concise" in session.err


def test_statistics(console: Console) -> None:
    plant(a=FAULTY, b=FAULTY + "# dlcheck: ignore[DLC101]\n")
    lines = console("--statistics").out.splitlines()
    assert lines[:2] == ["2  DLC203  worker-options-without-workers", "1  DLC002  unused-suppression"]
    session = console("--statistics", "--output-format", "json")
    assert len(json.loads(session.out)["findings"]) == 3
    assert session.err.startswith("2  DLC203")


def test_show_files(console: Console) -> None:
    plant(b="", a__c="", venv__d="")
    assert console("--show-files") == (0, "a/c.py\nb.py\n", "")


@pytest.mark.parametrize(
    ("arguments", "environment", "colored"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"CLICOLOR_FORCE": "1"}, True),
        ([], {"FORCE_COLOR": "0"}, False),
        ([], {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ([], {"NO_COLOR": "", "FORCE_COLOR": "1"}, True),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
    ],
)
def test_color(
    arguments: list[str],
    environment: dict[str, str],
    colored: bool,
    console: Console,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(train=FAULTY)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in console("--output-format", "full", *arguments).out) is colored
    assert "\x1b[" not in console("--output-file", "report.txt", "--color", "auto").out
    assert "\x1b[" not in Path("report.txt").read_text()


def test_names_that_the_terminal_cannot_show(tmp_path: Path) -> None:
    (tmp_path / "é\udcff.py").write_text(FAULTY)
    run = process(".", *SHOWN, cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (run.returncode, run.stderr) == (1, "")
    assert run.stdout.startswith("\\xe9")


def test_a_reader_that_stops(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"train{number}.py").write_text(FAULTY)
    command = f"{sys.executable} -m dlcheck check . | head -n 1"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert run.stdout
    assert run.stderr == ""


# Baseline


def test_baseline(console: Console) -> None:
    plant(train=FAULTY)
    session = console("baseline")
    assert session.status == 0
    assert session.out.startswith("Wrote 1 finding to .dlcheck-baseline.json.\n")
    assert 'add `baseline = ".dlcheck-baseline.json"` to [tool.dlcheck]' in session.out

    assert console("--baseline", ".dlcheck-baseline.json").status == 0
    Path("dlcheck.toml").write_text('baseline = ".dlcheck-baseline.json"\n')
    assert console().status == 0
    assert console("--isolated").status == 1

    plant(train="\n\n" + FAULTY + "loader = DataLoader([4], persistent_workers=True)\n")
    session = console(*SHOWN, "-q")
    assert session.status == 1
    assert session.out.startswith("train.py:6:")
    assert len(session.out.splitlines()) == 1


def test_baseline_is_kept_current(console: Console) -> None:
    plant(train=FAULTY, other=FAULTY)
    known = ["--baseline", "known.json"]
    session = console(*known, "--update-baseline", *SHOWN)
    assert session.status == 0
    assert console(*known, "--error-stale-baseline").status == 0

    plant(train=CLEAN)
    assert console("other.py", *known, "--error-stale-baseline").status == 0
    session = console(*known, "--error-stale-baseline")
    assert session.status == 1
    assert "1 finding of the baseline" in session.err
    assert console(*known).status == 0
    assert console(*known, "--prune-baseline").status == 0
    assert [row["path"] for row in json.loads(Path("known.json").read_text())["findings"]] == ["other.py"]
    assert console(*known, "--error-stale-baseline").status == 0

    plant(more=FAULTY)
    assert console(*known, "--prune-baseline").status == 1
    assert console(*known, "--update-baseline").status == 0
    assert console(*known).status == 0


def test_broken_baseline_is_an_error_and_the_findings_are_shown(console: Console) -> None:
    plant(train=FAULTY)
    Path("known.json").write_text("{")
    session = console("--baseline", "known.json", "--output-format", "json")
    assert session.status == 2
    report = json.loads(session.out)
    assert len(report["findings"]) == 1
    assert report["errors"][0]["path"] == "known.json"
    assert console("--baseline", "gone.json").status == 2
    assert console("baseline", "--baseline", "known.json").status == 2
    assert Path("known.json").read_text() == "{"


# Other commands


def test_version(console: Console) -> None:
    for option in ("-V", "--version"):
        assert console(option) == (0, f"dlcheck {__version__}\n", "")


def test_help(console: Console) -> None:
    session = console("--help")
    assert session.status == 0
    for command in ("check", "rule", "rules", "config", "baseline", "clean", "new-rule"):
        assert f"\n  {command} " in session.out
        assert console(command, "-h").status == 0


@pytest.mark.parametrize("word", ["DLC203", "dlc203", "worker-options-without-workers"])
def test_rule(word: str, console: Console) -> None:
    session = console("rule", word)
    assert session.status == 0
    assert session.out.startswith("# worker-options-without-workers (DLC203)\n")
    assert "## What it does" in session.out
    assert "## More cases" not in session.out
    assert "```toml\nsummary" not in session.out


def test_rule_as_json(console: Console) -> None:
    told = json.loads(console("rule", "DLC203", "--output-format", "json").out)
    assert told["code"] == "DLC203"
    assert told["severity"] == "error"
    assert told["documentation"].startswith("## What it does")
    assert "## More cases" not in told["documentation"]


def test_rules(console: Console) -> None:
    lines = console("rules").out.splitlines()
    assert [line.split()[0] for line in lines] == ["code", *pages.load()]
    rows = json.loads(console("rules", "--output-format", "json").out)
    assert [row["code"] for row in rows] == list(pages.load())


def test_config(console: Console) -> None:
    Path("pyproject.toml").write_text(
        '[project]\ndependencies = ["torch>=2.1"]\n[tool.dlcheck]\nfail-on = "info"\nselect = ["DLC203"]\n'
    )
    out = console("config", "--target-python", "3.12").out
    assert 'fail-on = "info"  # pyproject.toml\n' in out
    assert 'min-confidence = "medium"  # default\n' in out
    assert "torch: >=2.1  # pyproject.toml\n" in out
    assert "python: 3.12  # --target-python\n" in out
    assert out.endswith("rules: DLC001 DLC203\n")
    told = json.loads(console("config", "--output-format", "json").out)
    assert told["settings"]["fail-on"] == {"value": "info", "origin": "pyproject.toml"}
    assert told["rules"] == ["DLC001", "DLC203"]


def test_clean(console: Console) -> None:
    assert console("clean") == (0, "Nothing to delete.\n", "")
    cache = Path(".dlcheck_cache")
    cache.mkdir()
    assert console("clean").out == "Nothing to delete.\n"
    (cache / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n")
    assert console("clean") == (0, "Deleted .dlcheck_cache.\n", "")
    assert not cache.exists()


def test_new_rule(console: Console) -> None:
    Path("rules").mkdir()
    session = console("new-rule", "DLC999", "some-thing", "--directory", "rules")
    assert session.status == 0
    assert session.out.startswith("Wrote rules/DLC999-some-thing.md.\n")
    assert '@rule("DLC999")' in session.out
    page = pages.parse(Path("rules/DLC999-some-thing.md").read_text(), "page")
    assert (page.code, page.name) == ("DLC999", "some-thing")
    assert console("new-rule", "DLC999", "some-thing", "--directory", "rules").status == 2
    assert console("new-rule", "DLC203", "some-thing", "--directory", "rules").status == 2


def test_completion(console: Console, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("_DLCHECK_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "dlcheck rule DLC20")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert "plain,DLC203" in console().out


# Start-up


@pytest.mark.parametrize("text", ["x = 1\n", "import os\n"])
def test_libcst_stays_out_until_a_file_matters(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(text)
    code = "import sys\nfrom dlcheck.cli import main\ntry: main()\nexcept SystemExit: pass\nprint(sorted(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for arguments in (["check", "a.py"], ["check", "."]):
        run = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        loaded = run.stdout.splitlines()[-1]
        for name in ("libcst", "torch", "tomli", "psutil", "multiprocessing"):
            assert f"'{name}'" not in loaded


def test_python_m(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FAULTY)
    run = process("train.py", *SHOWN, cwd=tmp_path)
    assert run.returncode == 1
    assert run.stdout.startswith("train.py:3:")


def test_what_is_read_is_not_written_over_under_another_name(console: Console) -> None:
    Path("train.py").write_text("import torch\n")
    os.link("train.py", "report.txt")
    session = console("train.py", "--output-file", "report.txt")
    assert session.status == 2
    assert "would overwrite report.txt" in session.err
    assert Path("train.py").read_text() == "import torch\n"


@pytest.mark.parametrize("name", ["data.py", "pyproject.toml", "cells.ipynb"])
def test_no_page_of_a_search_takes_the_place_of_what_people_have_written(name: str, console: Console) -> None:
    Path(name).write_text("kept")
    session = console("tune", "--in-ci", "--factory", "data:make", "--report", name)
    assert session.status == 2
    assert "would overwrite" in session.err
    assert Path(name).read_text() == "kept"


BROKEN = "import torch\ndef (\n"
FIXABLE = """
from torch.utils.data import DataLoader

def train(net, dataset):
    for batch in DataLoader(dataset, num_workers=2, pin_memory=True):
        net(batch.cuda())
"""


@pytest.mark.parametrize("words", [["--diff"], ["--fix-only"], ["advise", "--diff"], ["baseline"]], ids=" ".join)
def test_what_cannot_be_read_is_named_where_no_report_is_given(words: list[str], console: Console) -> None:
    Path("broken.py").write_text(BROKEN)
    session = console(*words, "broken.py")
    assert session.status == 1
    assert "broken.py:2: Not checked: " in session.err


@pytest.mark.parametrize("words", [["--diff", "."], ["--fix", "--exit-non-zero-on-fix", "."]], ids=" ".join)
def test_exit_zero_holds_for_fixes_as_well(words: list[str], console: Console) -> None:
    Path("train.py").write_text(FIXABLE)
    assert console(*words, "--exit-zero").status == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--budget", "60"], "--budget goes with --measure"),
        (["--audit", "log"], "--audit goes with --measure"),
        (["--in-ci"], "--in-ci goes with --measure"),
        (["--show-files", "--fix"], "leave out --fix"),
        (["--show-files", "--output-file", "x"], "leave out --output-file"),
        (["--fix-only", "--output-file", "x"], "--output-file goes with a report"),
        (["--diff", "--statistics"], "--statistics goes with a report"),
        (["--update-baseline", "--prune-baseline", "--baseline", "x"], "leave out --prune-baseline"),
        (["--measure", "--report", "x", "--output-file", "./x"], "they are two files"),
        (["advise", "--diff", "--ranks", "2"], "leave out --ranks"),
        (["new-rule", "ABC\u0661\u0662\u0663", "a-b", "--directory", "x"], "three capitals and three digits"),
        (["new-rule", "ABC101", "a-b", "--directory", ""], "--directory is empty"),
    ],
)
def test_no_option_is_taken_and_ignored(words: list[str], told: str, console: Console) -> None:
    session = console(*words)
    assert session.status == 2
    assert told in session.err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("words", [["--nosuch"], ["rule", "nope"], ["--target-torch", "x"]], ids=" ".join)
def test_where_nothing_can_be_told_the_status_tells(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "dlcheck", *words]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=environment, stderr=full, stdout=subprocess.PIPE, check=False)
    assert done.returncode == 2


@pytest.mark.skipif(os.name == "nt", reason="the shell is another")
def test_a_server_without_input_says_so() -> None:
    pytest.importorskip("pygls")
    command = f"exec '{sys.executable}' -m dlcheck lsp <&-"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "dlcheck: error: standard input is closed\n")
