"""What docs/versions.md promises of the rules, held against the list that a minor version is released with.

A rule that was released keeps its code, name and severities; `python -m tests.test_versions` writes the list of the
version that is being made, which is committed with the change and read by whoever reviews it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import tomli

from dlcheck import __version__, pages
from dlcheck.engine import Report

ROOT = Path(__file__).resolve().parent.parent
MINOR = ".".join(__version__.split(".")[:2])
LISTS = sorted((ROOT / "tests" / "data").glob("rules-*.toml"), key=lambda path: [*map(int, path.stem[6:].split("."))])
CURRENT = ROOT / "tests" / "data" / f"rules-{MINOR}.toml"
KEYS = ("name", "severity", "confidence", "default", "fix", "measure")


def described() -> dict[str, dict[str, Any]]:
    """What a change of would be a change of the interface."""
    return {
        page.code: {
            **{key: getattr(page, key) or "" if key == "measure" else getattr(page, key) for key in KEYS},
            "variants": {
                name: {"severity": said.severity, "confidence": said.confidence, "fix": said.fix}
                for name in page.variants
                for said in [page.variant(name)]
            },
            "options": {name: one.default for name, one in page.options.items()},
        }
        for page in pages.read(pages.folder()).values()
    }


def listed(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = tomli.loads(path.read_text(encoding="utf-8"))
    return found


def test_rules_are_those_of_the_list() -> None:
    assert CURRENT.exists(), f"{CURRENT.name} is missing: `python -m tests.test_versions` writes it"
    now, then = described(), listed(CURRENT)
    changed = {
        f"{code}: {key}": (then.get(code, {}).get(key), now.get(code, {}).get(key))
        for code in sorted({*now, *then})
        for key in (*KEYS, "variants", "options")
        if now.get(code, {}).get(key) != then.get(code, {}).get(key)
    }
    assert changed == {}, "docs/versions.md says what may change; if this may, `python -m tests.test_versions`"


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_no_code_ever_got_another_rule(path: Path) -> None:
    now = {code: rule["name"] for code, rule in described().items()}
    old = {code: rule["name"] for code, rule in listed(path).items()}
    assert {code: name for code, name in old.items() if now.get(code, name) != name} == {}
    assert {name for name in old.values() if name in now.values()} == {
        name for code, name in old.items() if now.get(code) == name
    }


def test_a_rule_names_the_version_that_brought_it() -> None:
    numbers = [*map(int, MINOR.split("."))]
    for page in pages.read(pages.folder()).values():
        assert [*map(int, page.since.split("."))] <= numbers, page.code
        known = [path.stem[6:] for path in LISTS if page.code in listed(path)]
        assert known[0] == page.since, page.code


def test_schema_is_the_one_that_the_policy_names() -> None:
    from dlcheck.report import render

    report = json.loads(render(Report([], [], 0, {}), "json", pages={}, color=False))
    policy = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    assert f"`{report['schema']}`" in policy
    assert f"`{report['schema']}`" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_policy_names_the_pythons_of_the_classifiers() -> None:
    project = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = re.findall(r"Python :: (\d\.\d+)", " ".join(project["classifiers"]))
    row = re.search(
        r"^\| Python that dlcheck runs in \| ([\d., ]+);", (ROOT / "docs/versions.md").read_text("utf-8"), re.M
    )
    assert row
    assert row[1].split(", ") == promised
    (torch,) = project["optional-dependencies"]["measure"]
    assert f"| {torch.removeprefix('torch>=')} and newer" in (ROOT / "docs/versions.md").read_text("utf-8")


def written() -> str:
    """The list as TOML."""
    parts = [
        f"# The rules of {MINOR}: what must not change unnoticed (docs/versions.md). `python -m tests.test_versions`\n"
    ]
    for code, rule in described().items():
        parts += [f"\n[{code}]\n", *(f"{key} = {json.dumps(rule[key])}\n" for key in KEYS)]
        for name, said in rule["variants"].items():
            inner = ", ".join(f"{key} = {json.dumps(value)}" for key, value in said.items())
            parts.append(f"variants.{name} = {{ {inner} }}\n")
        parts += [f"options.{name} = {json.dumps(value)}\n" for name, value in rule["options"].items()]
        parts += [f"{empty} = {{}}\n" for empty in ("variants", "options") if not rule[empty]]
    return "".join(parts)


if __name__ == "__main__":
    CURRENT.write_text(written(), encoding="utf-8")
