"""The workflows and the action: what they may do, what they run, and the action's own scripts with bash.

No runner is at hand here: what GitHub makes of the files is checked by zizmor in the workflow itself.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tomli
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTION = ROOT / "action.yml"
PROJECT = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TOOLS = (ROOT / ".ci" / "tools.txt").read_text(encoding="utf-8")
# `uses: owner/name[/path]@commit # tag`
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
OURS = re.compile(r"\./ # zizmor: ignore\[self-repository\] .+")
# What may be written anywhere: an action's own words, and each of its permissions has its reason beside it.
WRITING = {
    ("release.yml", "attest"): {"id-token", "attestations"},
    ("release.yml", "pypi"): {"id-token"},
    ("release.yml", "github"): {"contents"},
}


def load(path: Path) -> dict[str, Any]:
    loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


# On Windows the first `bash` may be that of another system.
bash = pytest.mark.skipif(os.name == "nt" or shutil.which("bash") is None, reason="needs bash and a POSIX shebang")


class Script(NamedTuple):
    place: str
    text: str


def jobs() -> Iterator[tuple[Path, str, dict[str, Any]]]:
    for path in WORKFLOWS:
        for name, job in load(path)["jobs"].items():
            yield path, name, job


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, name, job in jobs():
        yield from ((f"{path.name}: {name}", step) for step in job["steps"])
    yield from (("action.yml", step) for step in load(ACTION)["runs"]["steps"])


SCRIPTS = [Script(place, step["run"]) for place, step in steps() if "run" in step]
LINES = [(script.place, line.strip()) for script in SCRIPTS for line in script.text.splitlines() if line.strip()]


def test_there_are_three_workflows() -> None:
    assert [path.stem for path in WORKFLOWS] == ["ci", "nightly", "release"]


@pytest.mark.parametrize("path", [*WORKFLOWS, ACTION, ROOT / "docs" / "ci.md"], ids=lambda path: path.name)
def test_every_action_is_pinned_by_its_commit(path: Path) -> None:
    used = re.findall(r"\buses: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert used
    placeholder = "ADDRESS/dlcheck@COMMIT"  # of the docs: the owner is not known yet
    wrong = [one for one in used if not (PINNED.fullmatch(one) or OURS.fullmatch(one))]
    assert wrong == ([placeholder] if path.suffix == ".md" else [])


def test_an_action_has_one_version() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (*WORKFLOWS, ACTION, ROOT / "docs" / "ci.md"))
    versions: dict[str, set[str]] = {}
    for name, version in re.findall(r"uses: ([\w./-]+)@([0-9a-f]{40} # \S+)", text):
        versions.setdefault(name, set()).add(version)
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_nothing_is_permitted_but_what_a_job_asks_for(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {}
    assert set(workflow["concurrency"]) == {"group", "cancel-in-progress"}
    for name, job in workflow["jobs"].items():
        writing = {scope for scope, access in job["permissions"].items() if access != "read"}
        assert writing == WRITING.get((path.name, name), set()), name
        assert 0 < job["timeout-minutes"] <= 300, name


def test_no_credentials_stay_and_none_are_stored() -> None:
    checkouts = [step for _, step in steps() if step.get("uses", "").startswith("actions/checkout@")]
    assert len(checkouts) >= 7
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)
    for path in (*WORKFLOWS, ACTION):
        assert "secrets" not in path.read_text(encoding="utf-8").replace("No secret is stored", "")


def test_no_expression_becomes_part_of_a_script() -> None:
    assert [script.place for script in SCRIPTS if "${{" in script.text] == []


def test_no_workflow_runs_what_a_fork_asks_for_with_more_rights() -> None:
    for path in WORKFLOWS:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"pull_request_target|workflow_run|issue_comment", text)


# -- What they run -----------------------------------------------------------------------------------------------------

# On every runner, or of the shell.
GIVEN = {"gh", "grep", "set", "unset", "printf", "[", "exit", "while", "done", "for", "do"}
MODULES = {"pip": "", "pytest": "pytest", "build": "build", "pre_commit": "pre-commit"}


def requirements() -> set[str]:
    """Names of what the extras and the tools install."""
    extras = [one for extra in PROJECT["optional-dependencies"].values() for one in extra]
    return {re.split(r"[^\w-]", one)[0] for one in (*extras, *TOOLS.splitlines())}


@pytest.mark.parametrize(("place", "line"), [found for found in LINES if found[0] != "action.yml"])
def test_every_command_exists(place: str, line: str) -> None:
    words = shlex.split(line)
    program, arguments = words[0], words[1:]
    if program.startswith(".ci/"):
        assert os.access(ROOT / program, os.X_OK), line
    elif program == "python" and arguments[0] == "-m":
        needs = MODULES[arguments[1]]
        assert not needs or needs in requirements(), line
    elif program == "python":
        text = (ROOT / arguments[0]).read_text(encoding="utf-8")
        assert all(f'"{word}"' in text for word in arguments if word.startswith("--")), line
    else:
        assert program in GIVEN | requirements(), line
    for word in arguments:
        if re.match(r"(tests|benchmarks|examples|dlcheck)\b|\.ci/|constraints", word):
            assert (ROOT / word).exists(), line
        for extra in re.findall(r"^\.\[(.+)\]$", word):
            assert {*extra.split(",")} <= {*PROJECT["optional-dependencies"]}, line


MARKS = sorted({found for _, line in LINES for found in re.findall(r"-m ([a-z]+|\".+?\")$", line)})


@pytest.mark.parametrize("marks", MARKS)
def test_marks_of_tests_are_known(marks: str) -> None:
    known = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"][
        "markers"
    ]
    assert {*re.findall(r"\w+", marks)} - {"not", "and"} <= {one.split(":")[0] for one in known}


def test_the_three_checks_of_ci_run_are_those_of_the_workflow() -> None:
    here = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    lines = [line for place, line in LINES if place == "ci.yml: lint"]
    for command in ("ruff check", "ruff format --check", "mypy --strict dlcheck tests benchmarks"):
        assert command in lines
        assert f".venv/bin/{command}" in here


def test_pythons_are_those_of_the_classifiers() -> None:
    matrix = load(WORKFLOWS[0])["jobs"]["quick"]["strategy"]["matrix"]
    prefix = "Programming Language :: Python :: "
    promised = [one.removeprefix(prefix) for one in PROJECT["classifiers"] if re.match(prefix + r"\d\.", one)]
    assert matrix["python"] == promised
    assert PROJECT["requires-python"] == f">={promised[0]}"
    assert {system.split("-")[0] for system in matrix["os"]} == {"ubuntu", "macos", "windows"}
    others = {step["with"]["python-version"] for _, step in steps() if "setup-python" in step.get("uses", "")}
    assert {one for one in others if "${{" not in one} <= {*promised}
    assert load(ACTION)["inputs"]["python-version"]["default"] in promised


def test_tools_of_a_release_have_one_version() -> None:
    assert all(re.fullmatch(r"[\w-]+==[\d.]+|#.*", line) for line in TOOLS.splitlines())


@bash
def test_a_tag_that_is_not_the_version_releases_nothing() -> None:
    command = ["bash", str(ROOT / ".ci" / "build-release"), "v0.0.0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "the tag is v0.0.0, but dlcheck/__init__.py says " in done.stderr


# -- The action --------------------------------------------------------------------------------------------------------


def action_step(name: str) -> dict[str, Any]:
    (found,) = [step for step in load(ACTION)["runs"]["steps"] if step.get("id") == name]
    assert isinstance(found, dict)
    return found


class Ran(NamedTuple):
    status: int
    output: str
    outputs: dict[str, str]
    sarif: Any


def act(folder: Path, **given: str) -> Ran:
    """Run the action's step `check` in a folder, as a runner does: the script in a file, inputs in its environment."""
    place = folder.parent / "runner"
    place.mkdir(exist_ok=True)
    program = place / "dlcheck"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m dlcheck "$@"\n')
    program.chmod(0o755)
    step, inputs = action_step("check"), load(ACTION)["inputs"]
    values = {name: given.get(name.replace("-", "_"), one["default"]) for name, one in inputs.items()}
    known = {
        "steps.install.outputs.program": str(program),
        "runner.temp": str(place),
        **{f"inputs.{name}": value for name, value in values.items()},
    }
    settings = {
        name: re.sub(r"\$\{\{ (.+?) \}\}", lambda found: known[found[1]], value) for name, value in step["env"].items()
    }
    outputs, script = place / "outputs", place / "script.sh"
    outputs.write_text("")
    script.write_text(step["run"])
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],  # as `shell: bash` does
        cwd=folder,
        env={**os.environ, **settings, "GITHUB_OUTPUT": str(outputs), "GITHUB_WORKSPACE": str(folder.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    told = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
    sarif = json.loads(Path(told["sarif"]).read_text()) if "sarif" in told else None
    return Ran(done.returncode, done.stdout, told, sarif)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples" / "faulty", tmp_path / "project", ignore=shutil.ignore_patterns("data"))
    return tmp_path / "project"


def codes(sarif: Any) -> set[str]:
    return {result["ruleId"] for run in sarif["runs"] for result in run["results"]}


@bash
def test_the_action_annotates_and_writes_sarif(project: Path) -> None:
    ran = act(project)
    assert ran.status == 1
    assert ran.outputs["exit-code"] == "1"
    # Paths are those of the repository, not of the working directory.
    assert re.search(r"^::warning .*file=project/devices\.py", ran.output, re.MULTILINE), ran.output
    assert "DLC101" in codes(ran.sarif)
    places = ran.sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert places.startswith("project/")


@bash
def test_inputs_of_the_action(project: Path) -> None:
    (project / "a b.py").write_text(
        "from torch.utils.data import DataLoader\n\nloader = DataLoader(range(9), num_workers=2, pin_memory=True)\n"
        "for batch in loader:\n    batch.cuda()\n"
    )
    args, paths = "--select=DLC505\n\n--extend-select=DLC101", "\n  \na b.py\r\ndevices.py\n"
    ran = act(project, paths=paths, args=args, fail_on="never", format="concise")
    assert (ran.status, ran.outputs["exit-code"]) == (0, "0"), ran.output
    told = {line.split(":")[0] for line in ran.output.splitlines() if re.search(r": DLC\d{3} ", line)}
    assert told == {"a b.py", "devices.py"}
    assert codes(ran.sarif) == {"DLC101"}


@bash
@pytest.mark.parametrize("name", ["paths", "args", "format", "fail_on"])
def test_an_input_is_never_run(name: str, project: Path) -> None:
    ran = act(project, **{name: '"; touch pwned; $(touch pwned) `touch pwned` ${PATH} *\nexit-code=0'})
    assert ran.status == 2
    assert ran.outputs == {"exit-code": "2"}
    assert "Traceback" not in ran.output
    assert not list(project.parent.rglob("pwned"))


@bash
@pytest.mark.slow
@pytest.mark.network
def test_the_action_installs_what_it_was_checked_out_with(tmp_path: Path) -> None:
    step = action_step("install")
    outputs = tmp_path / "outputs"
    settings = {"PYTHON": sys.executable, "SOURCE": str(ROOT), "ENVIRONMENT": str(tmp_path / "with a blank")}
    assert step["env"].keys() == settings.keys()
    done = subprocess.run(
        ["bash", "-c", step["run"]],
        env={**os.environ, **settings, "GITHUB_OUTPUT": str(outputs)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    program = outputs.read_text().removeprefix("program=").strip()
    assert Path(program).parent.parent == tmp_path / "with a blank"
    version = re.search(r'"(.+)"', (ROOT / "dlcheck" / "__init__.py").read_text().split("__version__", 1)[1])
    assert version
    assert done.stdout.strip() == f"dlcheck {version[1]}"
