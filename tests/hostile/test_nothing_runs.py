"""`check` executes nothing of a project, opens no socket, and writes nothing but what it was asked for.

An audit hook, in the process from its first line on, tells what happens.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import sources

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow

# Each event that means more than reading, as a line of JSON.  The file is opened before the hook is there.
HOOK = """
import json, os, sys
_log = os.open(os.environ["DLCHECK_TEST_LOG"], os.O_WRONLY | os.O_APPEND)
_project = os.environ["DLCHECK_TEST_PROJECT"]
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
def _told(event, *words):
    os.write(_log, json.dumps([event, *map(str, words)]).encode() + b"\\n")
def _hook(event, arguments):
    family = event.partition(".")[0]
    if event == "open":
        path, mode, flags = arguments
        if not isinstance(path, int) and (flags or 0) & _WRITING and os.fsdecode(path) != os.devnull:
            _told("write", os.path.abspath(os.fsdecode(path)))
    elif event == "exec":
        name = getattr(arguments[0], "co_filename", "")
        if name.startswith(_project) or not os.path.isabs(name) and os.path.exists(os.path.join(_project, name)):
            _told("exec", name)
    elif event == "import":
        if arguments[1] and str(arguments[1]).startswith(_project):
            _told("import", *arguments[:2])
    elif family in ("socket", "ctypes", "urllib", "http", "ftplib", "smtplib", "pty", "winreg", "webbrowser"):
        if event != "ctypes.dlopen" or not sys.flags.ignore_environment:
            _told(event, *arguments[:2])
    elif event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty"):
        _told("process", *arguments[:2])
    elif event in ("os.remove", "os.rename", "os.link", "os.symlink", "os.truncate", "os.rmdir", "os.mkdir", "os.chmod",
                   "os.chown", "os.utime", "os.setxattr", "os.removexattr") or family == "shutil":
        _told("write", *(os.path.abspath(os.fsdecode(one)) for one in arguments[:2] if isinstance(one, (str, bytes))))
sys.addaudithook(_hook)
"""
CANARY = "open({canary!r}, 'w').close()\nimport torch\nfrom torch.utils.data import DataLoader\n"
# What Python, pytest, pip and editors would run, and what stands beside the code under the names of our own modules.
NAMES = (
    "setup.py", "conftest.py", "sitecustomize.py", "usercustomize.py", "__init__.py", "__main__.py", "json.py",
    "click.py", "libcst.py", "tomli.py", "psutil.py", "dlcheck.py", "torch.py", "tokenize.py", "checks.py",
    "noxfile.py", "typing.py",
)  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    canary = CANARY.format(canary=str(tmp_path / "ran"))
    for name in NAMES:
        (folder / name).write_text(canary + sources.TAIL, encoding="utf-8")
    (folder / "train.py").write_text(
        canary + "import json, click, checks, conftest\nfrom torch import *\nds = checks.ds\n" + sources.TAIL
    )
    (folder / "evil.pth").write_text(f"import os; open({str(tmp_path / 'ran')!r}, 'w')\n", encoding="utf-8")
    settings = 'build-backend = "checks"\nrequires = []\n[project]\nname = "x"\ndynamic = ["version"]\n'
    (folder / "pyproject.toml").write_text(f"[build-system]\n{settings}", encoding="utf-8")
    code = "".join(f"{line}\n" for line in ("!touch ../ran", "%run conftest.py", *canary.splitlines()))
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "source": code + sources.TAIL}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (folder / "nb.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    for number, (_, data) in enumerate(sources.odd_bytes()):
        if number % 12 == 0:
            (folder / f"odd{number}.py").write_bytes(data)
    return folder


def watched(project: Path, *words: str, **variables: str) -> list[list[str]]:
    """What a run in a project does."""
    hooks = project.parent / "hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / "sitecustomize.py").write_text(HOOK, encoding="utf-8")
    (hooks / "dlcheck").write_text("from dlcheck.cli import main\nmain()\n", encoding="utf-8")  # as pip writes it
    log = project.parent / "log"
    log.write_bytes(b"")
    known = {name: value for name, value in os.environ.items() if not name.startswith(("GIT", "DLCHECK"))}
    environment = {
        **known,
        "PYTHONPATH": os.pathsep.join([str(hooks), str(ROOT)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "DLCHECK_TEST_LOG": str(log),
        "DLCHECK_TEST_PROJECT": str(project),
        **variables,
    }
    command = [sys.executable, str(hooks / "dlcheck"), *words]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, timeout=120, check=False)
    assert done.returncode in (0, 1, 2), done.stderr
    assert b"Traceback" not in done.stderr
    assert not (project.parent / "ran").exists()
    return [json.loads(line) for line in log.read_text().splitlines()]


def written(events: Sequence[Sequence[str]]) -> set[Path]:
    return {Path(path) for kind, *paths in events if kind == "write" for path in paths}


def test_check_reads_and_keeps_what_it_found(project: Path) -> None:
    events = watched(project, "check", ".")
    assert {kind for kind, *_ in events} == {"write"}  # and so the hook sees what is done
    cache = project / ".dlcheck_cache"
    assert {path for path in written(events) if cache not in (path, *path.parents)} == set()


def test_without_its_cache_it_writes_nothing(project: Path) -> None:
    assert watched(project, "check", "--no-cache", *sorted(file.name for file in project.iterdir())) == []
    assert watched(project, "check", "--no-cache", "--diff", "--unsafe-fixes", "train.py") == []


def test_fixes_and_reports_are_written_where_they_belong(project: Path) -> None:
    report = project.parent / "report.json"
    events = watched(project, "check", "--no-cache", "--output-format", "json", "--output-file", str(report), ".")
    beside = {path for path in written(events) if path.name.startswith(".dlcheck-")}
    assert written(events) == {report, *beside}
    assert {path.parent for path in beside} == {report.parent}
    fixable = {one["path"] for one in json.loads(report.read_text())["findings"] if one["fix"]}
    before = {file.name: file.read_bytes() for file in project.iterdir()}
    events = watched(project, "check", "--no-cache", "--fix", "--unsafe-fixes", ".")
    after = {file.name: file.read_bytes() for file in project.iterdir()}
    changed = {name for name in before if before[name] != after[name]}
    assert changed
    assert changed <= fixable
    assert before.keys() == after.keys()
    assert {kind for kind, *_ in events} == {"write"}
    named = {path.name for path in written(events) if not path.name.startswith(".")}
    assert {path.parent for path in written(events)} == {project}
    assert named == changed


def test_rules_of_the_project_are_run_where_it_names_them(project: Path) -> None:
    """The one way in, which the documentation names; under pre-commit it is closed."""
    (project / "dlcheck.toml").write_text('extra-rules = ["rules"]\n', encoding="utf-8")
    (project / "rules").mkdir()
    (project / "rules" / "checks.py").write_text("import this_is_not_there\n", encoding="utf-8")
    watched(project, "new-rule", "ABC101", "of-our-own", "--directory", "rules")
    assert watched(project, "check", "--no-cache", ".", PRE_COMMIT="1") == []
    events = watched(project, "check", "--no-cache", ".")
    assert {tuple(event) for event in events} == {("exec", str(project / "rules" / "checks.py"))}


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_git_lists_files_and_runs_nothing(project: Path) -> None:
    """A repository brings its own settings along: programs that git runs, also to fetch what the repository lacks."""
    ran, trap = project.parent / "ran", project.parent / "trap"
    trap.write_text(f'#!/bin/sh\ntouch "{ran}"\nexec git-upload-pack "$@"\n', encoding="utf-8")
    trap.chmod(0o755)
    clone = lacking_a_tree(project, trap)
    events = watched(clone, "check", "--no-cache", ".")
    assert {event[0] for event in events} == {"process"}
    assert all(event[1].endswith("git") and "ls-files" in event[2] for event in events)
    # The trap is one: whoever asks git without care falls into it.
    command = ["git", "-c", "core.fsmonitor=false", "ls-files", "-co"]
    subprocess.run(command, cwd=clone, capture_output=True, check=False)
    if not ran.exists():
        pytest.skip("this git does not fetch for a list of files")


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_an_index_that_names_other_folders_leads_nowhere(tmp_path: Path) -> None:
    """An archive can bring along an index that git itself would not write."""
    folder, victim = tmp_path / "project", tmp_path / "victim.py"
    (folder / "aa").mkdir(parents=True)
    victim.write_text(sources.GOOD, encoding="utf-8")
    (folder / "aa" / "victim.py").write_text(sources.GOOD, encoding="utf-8")
    for words in (("init", "-q"), ("add", "-A")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    index = folder / ".git" / "index"
    data = index.read_bytes()[:-20].replace(b"aa/victim.py", b"../victim.py")
    index.write_bytes(data + hashlib.sha1(data).digest())
    listed = subprocess.run(["git", "ls-files", "-c"], cwd=folder, capture_output=True, text=True, check=False).stdout
    if listed != "../victim.py\n":
        pytest.skip("this git does not believe such an index")
    done = subprocess.run(
        [sys.executable, "-m", "dlcheck", "check", "--fix", "--unsafe-fixes", "."], cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert victim.read_text(encoding="utf-8") == sources.GOOD
    assert "non_blocking=True" in (folder / "aa" / "victim.py").read_text(encoding="utf-8")


def lacking_a_tree(project: Path, trap: Path) -> Path:
    """A clone with a sparse index, of which one folder's list was never fetched."""

    def git(*words: str, cwd: Path, given: str = "") -> str:
        settings = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
        known = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        run = subprocess.run(
            ["git", *settings, *words], cwd=cwd, env=known, input=given, text=True, capture_output=True, check=False
        )
        if run.returncode:
            pytest.skip(f"this git cannot {words[0]}: {run.stderr}")
        return run.stdout.strip()

    clone = project.parent / "clone"
    for name in ("a", "b"):
        (project / name).mkdir()
        (project / name / "train.py").write_text(f"# {name}\n{sources.GOOD}", encoding="utf-8")
    git("init", "-q", cwd=project)
    git("add", "-f", "a", "b", "train.py", cwd=project)
    git("commit", "-qm", "x", cwd=project)
    git("config", "uploadpack.allowfilter", "true", cwd=project)
    git("clone", "-q", "--filter=tree:0", "--no-checkout", project.as_uri(), str(clone), cwd=project)
    git("sparse-checkout", "init", "--cone", "--sparse-index", cwd=clone)
    git("sparse-checkout", "set", "b", cwd=clone)
    git("checkout", "-q", "main", cwd=clone)
    wanted = [
        git("rev-parse", f"HEAD{name}", cwd=project) for name in ("", "^{tree}", ":b", ":b/train.py", ":train.py")
    ]
    packs = clone / ".git" / "objects" / "pack"
    shutil.rmtree(packs)
    packs.mkdir()
    name = git("pack-objects", str(packs / "pack"), cwd=project, given="\n".join(wanted) + "\n")
    (packs / f"pack-{name}.promisor").touch()
    git("config", "remote.origin.uploadpack", str(trap), cwd=clone)
    git("config", "core.fsmonitor", str(trap), cwd=clone)
    git("config", "core.hooksPath", str(trap.parent), cwd=clone)
    return clone


def test_measuring_says_what_it_will_run_and_runs_nothing_in_ci(project: Path) -> None:
    """The interpreter that is to be run does not get to it."""
    trap = project.parent / "python"
    trap.write_text(f'#!/bin/sh\ntouch "{project.parent / "ran"}"\n', encoding="utf-8")
    trap.chmod(0o755)
    words = ("measure", "--no-cache", "--python", str(trap), "train.py")
    run, factory = ("--run", "python train.py"), ("--factory", "train:loader")
    assert watched(project, *words, *run, CI="1") == []
    assert watched(project, *words, *factory, "--in-ci", CI="true", PRE_COMMIT="1") == []
    known = {**os.environ, "PYTHONPATH": str(ROOT), "CI": "true"}
    command = [
        sys.executable,
        str(project.parent / "hooks" / "dlcheck"),
        "measure",
        "--no-cache",
        "--no-records",
        "train.py",
    ]

    def said(*more: str) -> str:
        run = subprocess.run([*command, *more], cwd=project, env=known, capture_output=True, text=True, check=False)
        return run.stderr

    assert said() == "dlcheck: error: nothing is measured where CI is set, unless you say so: --in-ci\n"
    first = said("--in-ci", "--python", str(trap)).splitlines()[0]
    assert first == f"dlcheck: runs `{trap}` with stand-ins of dlcheck's own, and nothing of your program"
    assert (project.parent / "ran").exists()
