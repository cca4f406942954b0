"""The recipes for CI services in docs/ci.md: their commands write what the services read."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import forked
import jsonschema
import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
RECIPES = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", RECIPES, re.M | re.S)


def commands() -> list[str]:
    """What the recipes run of dlcheck, each once."""
    lines = [line for kind, text in BLOCKS if kind in ("yaml", "groovy") for line in text.splitlines()]
    found = [re.search(r"(?:^|[ '/])(dlcheck (?:--|check).*?)'?$", line) for line in lines]
    return list(dict.fromkeys(one[1] for one in found if one))


COMMANDS = commands()


def valid_sarif(text: str) -> set[str]:
    report = json.loads(text)
    schema = json.loads((ROOT / "tests" / "data" / "sarif-2.1.0.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(report, schema)
    return {result["ruleId"] for run in report["runs"] for result in run["results"]}


# What https://docs.gitlab.com/ci/testing/code_quality/ asks of each issue.
ISSUE: dict[str, Any] = {
    "type": "object",
    "required": ["description", "check_name", "fingerprint", "severity", "location"],
    "properties": {
        "description": {"type": "string", "minLength": 1},
        "check_name": {"type": "string", "minLength": 1},
        "fingerprint": {"type": "string", "minLength": 8},
        "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
        "location": {
            "required": ["path", "lines"],
            "properties": {
                "path": {"type": "string", "pattern": "^(?!\\./|/)"},
                "lines": {"required": ["begin"], "properties": {"begin": {"type": "integer", "minimum": 1}}},
            },
        },
    },
}


def valid_gitlab(text: str) -> set[str]:
    issues = json.loads(text)
    jsonschema.validate(issues, {"type": "array", "items": ISSUE})
    assert len({issue["fingerprint"] for issue in issues}) == len(issues)
    return {issue["check_name"] for issue in issues}


def valid_junit(text: str) -> set[str]:
    root = ElementTree.fromstring(text)
    assert root.tag == "testsuites"
    cases = root.findall("testsuite/testcase")
    assert all({"name", "classname"} <= set(case.attrib) for case in cases)
    failures = [failure for case in cases for failure in case.findall("failure")]
    assert int(root.attrib["failures"]) == len(failures)
    return set(
        re.findall(r"DLC\d{3}", " ".join(case.attrib["name"] for case in cases if case.find("failure") is not None))
    )


def valid_github(text: str) -> set[str]:
    lines = [line for line in text.splitlines() if line.startswith("::")]
    assert all(re.match(r"::(error|warning|notice) [^:]*file=[^,]+,line=\d+", line) for line in lines)
    return {code for line in lines for code in re.findall(r"dlcheck \((DLC\d{3})\)", line)}


VALID: dict[str, Callable[[str], set[str]]] = {
    "sarif": valid_sarif,
    "gitlab": valid_gitlab,
    "junit": valid_junit,
    "github": valid_github,
}


def test_every_service_has_its_command() -> None:
    assert sorted(re.findall(r"--output-format (\w+)", " ".join(COMMANDS))) == sorted(VALID)


@pytest.mark.parametrize("command", COMMANDS)
def test_recipe_writes_what_its_service_reads(command: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "faulty", project, ignore=shutil.ignore_patterns("data"))
    words = shlex.split(command)[1:]
    done = forked.dlcheck(*words, cwd=project)
    assert done.returncode == (0 if "never" in words else 1), done.stderr
    form = words[words.index("--output-format") + 1]
    text = (
        (project / words[words.index("--output-file") + 1]).read_text("utf-8")
        if "--output-file" in words
        else done.stdout
    )
    assert "DLC101" in VALID[form](text)


def test_files_that_a_recipe_writes_are_those_that_it_hands_on() -> None:
    for kind, text in BLOCKS:
        for name in re.findall(r"--output-file (\S+)", text) if kind in ("yaml", "groovy") else ():
            assert len(re.findall(rf"\b{re.escape(name)}\b", text)) == 2, name


@pytest.mark.parametrize("text", [text for kind, text in BLOCKS if kind == "yaml"])
def test_recipe_is_yaml(text: str) -> None:
    assert yaml.safe_load(text)


def test_inputs_of_the_action_are_all_told() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.+?) \|", RECIPES, re.M))
    assert list(rows) == list(action["inputs"])
    told = {name: said.strip("`") for name, said in rows.items() if said.startswith("`")}
    assert told == {name: one["default"] for name, one in action["inputs"].items() if one["default"]}
    assert all(f"`{name}`" in RECIPES for name in action["outputs"])


def test_hooks_of_the_recipe_exist() -> None:
    manifest = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    ids = {hook["id"] for hook in manifest}
    assert {*re.findall(r"- id: (dlcheck\S*)", RECIPES)} <= ids
