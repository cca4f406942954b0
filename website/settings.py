"""The reference of the configuration, from the schema that editors check it with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dlcheck.pages import Page

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = ROOT / "dlcheck" / "dlcheck.schema.json"


def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return found


def markdown(known: dict[str, Page], name: dict[str, str]) -> str:
    """The page of the configuration; ``name`` is where the page of each rule is."""
    given = schema()
    lines = [
        "# Configuration",
        "",
        "The table `[tool.dlcheck]` of the nearest pyproject.toml, or the same keys at the top of a dlcheck.toml. An",
        "unknown key is an error. `dlcheck config` shows what is in force, and from where; an option of the command",
        "line that has the name of a key prevails over it.",
        "",
        f"This page is made from `{SCHEMA.relative_to(ROOT).as_posix()}`, which is shipped: editors complete and check",
        "a dlcheck.toml with it.",
        "",
    ]
    for key, value in given["properties"].items():
        if key != "$schema":
            lines += _key(key, {**_definition(value, given), **value})
    lines += ["## Options of rules", "", "| rule | option | default | |", "| --- | --- | --- | --- |"]
    for page in known.values():
        for option in page.options.values():
            lines.append(
                f"| [{page.code}]({name[page.code]}) | `{option.name}` | `{option.default!r}` | {option.help} |"
            )
    return "\n".join([*lines, ""])


def _definition(value: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = given["definitions"][value["$ref"].rpartition("/")[2]] if "$ref" in value else {}
    return found


def _key(key: str, value: dict[str, Any]) -> Iterator[str]:
    yield f"## {key}"
    yield ""
    yield str(value.get("description", ""))
    yield ""
    yield f"- Takes: {_kind(value)}"
    if "default" in value:
        yield f"- Default: `{json.dumps(value['default'])}`"
    yield ""


def _kind(value: dict[str, Any]) -> str:
    """What a key takes, in words."""
    if "enum" in value:
        return "one of " + ", ".join(f"`{json.dumps(one)}`" for one in value["enum"])
    plain = {"string": "text", "boolean": "`true` or `false`", "array": "a list of texts", "object": "a table"}
    return plain[value["type"]]
