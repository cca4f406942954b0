"""Names, texts and messages that a terminal, a log or a format would obey: every output stays what it says it is."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import forked
import jsonschema
import pytest
import sources

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "tests" / "data" / "sarif-2.1.0.schema.json").read_text(encoding="utf-8"))

# All that moves a cursor, hides text or turns it round; a line feed ends a line and does no more.
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
ODD = 'x = """\n::set-output name=a::b\n##[set-output name=a]b\n\x1b[2J\x9b31m\u202e"""\n'
ODD += 'for batch in loader:\n    y = batch.to("\\[a](javascript:b) `<img>` ##[error]c \x1b]0;owned\x07")\n'
TEXT = sources.GOOD + ODD


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if sys.platform in ("win32", "darwin"):
        pytest.skip("its file system takes few of these names")
    folder = tmp_path_factory.mktemp("names")
    (folder / "pyproject.toml").write_text('[tool.dlcheck]\nbaseline = "none\\u001b[2J.json"\n', encoding="utf-8")
    sources.named_oddly(folder, TEXT.encode())
    for name in (b"broken\x1b[2J\n::error::.py", b"broken ##[error].ipynb"):
        Path(os.fsdecode(os.path.join(os.fsencode(folder), name))).write_text("import torch, DataLoader\nx = (")
    return folder


def run(folder: Path, *words: str, **variables: str) -> tuple[int, str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")} | variables
    done = forked.dlcheck(*words, cwd=folder, environment=environment)
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stdout + done.stderr
    return done.returncode, done.stdout, done.stderr


TEXTS: dict[str, tuple[str, ...]] = {
    "full": ("check", "--output-format", "full"),
    "concise": ("check", "--output-format", "concise"),
    "github": ("check", "--output-format", "github"),
    "statistics": ("check", "--statistics"),
    "verbose": ("check", "-v", "--output-format", "json", "--output-file", os.devnull),
    "files": ("check", "--show-files"),
    "a file that is not there": ("check", "a\x1b[2J\n::error::b.py"),
    "a folder that is not there": ("check", "--output-file", "\x1b[2J/::error::/x"),
    "a rule that is not there": ("check", "--select", "\x1b[2J\n##[error]"),
    "an option that is not there": ("check", "--\x1b[2J\n##[error]"),
    "a command that is not there": ("\x1b[2J\n##[error]",),
    "a page that is not there": ("rule", "\x1b[2J"),
    "an interpreter that is not there": ("measure", "--python", "\x1b[2J\n::error::"),
    "advice": ("advise",),
    "advice for a file": ("advise", "\x1b[2J]0;owned\x07.py"),
    "the machine": ("env", "::stop-commands::x.py"),
    "configuration": ("config",),
    "a baseline": ("baseline", "--baseline", "\x1b[2J.json"),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_no_terminal_obeys(name: str, folder: Path) -> None:
    status, out, err = run(folder, *TEXTS[name], CI="", GITHUB_ACTIONS="true")
    assert status in (0, 1, 2)
    assert out + err
    assert OBEYED.findall(out + err) == []
    allowed = {"error", "warning", "notice"} if name == "github" else set()
    assert set(obeyed_by_the_runner(out + err)) <= allowed


def obeyed_by_the_runner(log: str) -> list[str]:
    """The commands that GitHub's runner finds in a log, as its ActionCommand.cs reads each line."""
    found = []
    for line in re.split("[\r\n]+", log):
        v2 = re.match(r"\s*::([^ :]+)(?: .*?)?::", line)
        v1 = re.search(r"##\[([^\] ]+)[^\]]*\]", line)
        found += [one[1] for one in (v2, v1) if one is not None][:1]
    return found


def test_the_runner_would_have_obeyed() -> None:
    assert obeyed_by_the_runner("  ::error::x\nx ##[set-output name=a]b\n:: y\n##[") == ["error", "set-output"]


def _sarif(text: str) -> list[str]:
    document = json.loads(text)
    jsonschema.validate(document, SCHEMA)
    messages = [result["message"]["text"] for result in document["runs"][0]["results"]]
    assert not any("](" in message for message in messages)
    return [
        one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in document["runs"][0]["results"]
    ]


def _junit(text: str) -> list[str]:
    return [str(case.get("file")) for case in ElementTree.fromstring(text).iter("testcase") if case.get("file")]


FOR_PROGRAMS: dict[str, Callable[[str], list[Any]]] = {
    "json": lambda text: [one["path"] for one in json.loads(text)["findings"]],
    "gitlab": lambda text: [one["location"]["path"] for one in json.loads(text)],
    "sarif": _sarif,
    "junit": _junit,
}


@pytest.mark.parametrize("form", FOR_PROGRAMS)
@pytest.mark.parametrize("variables", [{"GITHUB_ACTIONS": "true"}, {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}])
def test_what_programs_read_is_valid(form: str, variables: Mapping[str, str], folder: Path) -> None:
    status, out, err = run(folder, "check", "--output-format", form, ".", **variables)
    assert (status, err.count("\n")) == (2, 1)  # the baseline of the configuration is not there
    paths = set(FOR_PROGRAMS[form](out))
    assert len(paths) > len(sources.NAMES) // 2
    if form != "junit":
        assert out.isascii()
    if variables.get("GITHUB_ACTIONS"):
        assert obeyed_by_the_runner(out) == []


@pytest.mark.parametrize("command", [("env",), ("advise",)])
def test_facts_are_json_whatever_the_terminal_can_show(command: tuple[str, ...], folder: Path) -> None:
    status, out, _ = run(folder, *command, "--output-format", "json", "é\U0001f600.py", PYTHONIOENCODING="ascii")
    assert (status, out.isascii()) == (0, True)
    json.loads(out)


def test_json_names_lead_back_to_the_files(folder: Path) -> None:
    _, out, _ = run(folder, "check", "--output-format", "json", ".")
    for one in json.loads(out)["findings"]:
        assert (folder / one["path"]).exists()


def test_the_summary_of_a_step_is_no_markup(tmp_path: Path) -> None:
    (tmp_path / "[a](b) <img src=x> `.py").write_text(TEXT, encoding="utf-8")
    (tmp_path / "\\`<img src=x>`.py").write_text(TEXT, encoding="utf-8")
    file = tmp_path / "summary.md"
    run(tmp_path, "check", "--output-format", "github", ".", GITHUB_STEP_SUMMARY=str(file))
    rows = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert len(rows) > 5
    assert not [row for row in rows if "](" in row or "<img" in row]
    assert {len(re.split(r"(?<!\\)\|", row)) for row in rows} == {6}


def test_a_diff_names_files_as_git_does(tmp_path: Path) -> None:
    """A name with the lines of a diff in it leads nobody who applies the diff to another file."""
    name = "a\n--- a/victim.py\n+++ b/victim.py\n@@ -0,0 +1 @@\n+owned\n.py"
    (tmp_path / name.replace("/", "\u2215")).write_text(sources.GOOD, encoding="utf-8")
    (tmp_path / 'quo"te\\\xff.py').write_text(sources.GOOD, encoding="utf-8")
    status, diff, _ = run(tmp_path, "check", "--diff", "--unsafe-fixes", ".")
    assert status == 1
    headers = [line for line in diff.splitlines() if line.startswith(("--- ", "+++ "))]
    assert len(headers) == 4
    assert all(line.startswith(('--- "a/', '+++ "b/')) for line in headers)
    applied = subprocess.run(["git", "apply"], input=diff, text=True, cwd=tmp_path, capture_output=True, check=False)
    assert (applied.returncode, applied.stderr) == (0, "")
    assert all("non_blocking=True" in file.read_text(encoding="utf-8") for file in tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="terminals of POSIX")
@pytest.mark.parametrize("words", [("check", "--diff", "--unsafe-fixes", "."), ("nope\x1b[2J",)])
def test_at_a_terminal(words: tuple[str, ...], folder: Path) -> None:
    """Where it colours: nothing but colours reaches the terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "CI": ""}
    command = [sys.executable, "-m", "dlcheck", *words]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                break
            if not part:
                break
            seen += part
        process.wait(timeout=60)
    os.close(ours)
    text = re.sub("\x1b\\[[0-9;]*m", "", seen.decode("utf-8", "backslashreplace").replace("\r\n", "\n"))
    assert text
    assert OBEYED.findall(text) == []
