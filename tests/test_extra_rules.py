"""Rules of a project's own, and the options of rules, as a person at a console meets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import pytest

# Where a decorator fails, Python 3.10 names the line of the function.
DECORATED = 10 if sys.version_info >= (3, 11) else 11

PAGE = """\
# big-batches (ABC101)

```toml
summary = "A loader with large batches"
message = "`{loader}` has batches of {size}"
help = "Ask the one who pays for the GPU."
severity = "warning"
confidence = "high"
since = "0.1"
references = ["https://example.com/batches"]

[option.largest]
default = 64
help = "The largest size that is not reported."
```

## What it does

Reports loaders whose batches are larger than `largest`.
"""

CHECKS = """\
from collections.abc import Iterator

from dlcheck.checks.registry import option, rule
from dlcheck.checks.report import finding, written
from dlcheck.findings import Finding
from dlcheck.model.loaders import Loader
from dlcheck.model.values import Const


@rule("ABC101")
def big_batches(loader: Loader) -> Iterator[Finding]:
    largest = option(loader.project, "ABC101", "largest")
    for size in loader.option("batch_size"):
        if isinstance(size.value, Const) and size.value.value > largest:
            yield finding("ABC101", written(size, loader), loader.link, loader=loader.name, size=size.value.value)
"""

TRAIN = """\
from torch.utils.data import DataLoader


def build(dataset):
    loader = DataLoader(dataset, batch_size=100)
    return loader
"""

Dlcheck = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def dlcheck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dlcheck:
    """A project with a rule of its own; runs dlcheck in it."""
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "lint" / "own"
    own.mkdir(parents=True)
    (own / "ABC101-big-batches.md").write_text(PAGE)
    (own / "checks.py").write_text(CHECKS)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "dlcheck.toml").write_text('extra-rules = ["lint/own"]\nexclude = ["lint"]\n')

    def run(*arguments: str, folder: Path = tmp_path, **environment: str) -> subprocess.CompletedProcess[str]:
        inherited = {key: value for key, value in os.environ.items() if key != "PRE_COMMIT"}
        return forked.dlcheck(*arguments, cwd=folder, environment={**inherited, **environment})

    return run


def found(run: subprocess.CompletedProcess[str]) -> list[str]:
    return [f"{one['code']} {one['path']}:{one['line']}" for one in json.loads(run.stdout)["findings"]]


def errors(run: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return list(json.loads(run.stdout)["errors"])


JSON = ("--output-format", "json")


def test_a_rule_of_ones_own_is_a_rule_like_others(dlcheck: Dlcheck, tmp_path: Path) -> None:
    run = dlcheck("train.py", "--output-format", "concise")
    assert run.returncode == 1
    assert run.stdout.startswith("train.py:5:34: ABC101 `loader` has batches of 100\n")
    assert found(dlcheck("train.py", *JSON, "--ignore", "big-batches")) == []
    assert found(dlcheck("train.py", *JSON, "--select", "ABC")) == ["ABC101 train.py:5"]
    assert "big-batches" in dlcheck("rules").stdout
    assert "larger than `largest`" in dlcheck("rule", "ABC101").stdout
    assert "`largest` (default 64): The largest size that is not reported." in dlcheck("rule", "ABC101").stdout
    (tmp_path / "train.py").write_text(TRAIN.replace("=100)", "=100)  # dlcheck: ignore[big-batches] paid"))
    assert found(dlcheck("train.py", *JSON)) == []


def test_options_of_rules(dlcheck: Dlcheck, tmp_path: Path) -> None:
    settings = (tmp_path / "dlcheck.toml").read_text()
    for table in ("rules.ABC101", "rules.big-batches"):
        (tmp_path / "dlcheck.toml").write_text(f"{settings}[{table}]\nlargest = 100\n")
        assert found(dlcheck("train.py", *JSON)) == []


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[rules.ABC101]\nlargset = 1", "ABC101 has no option `largset` (it has: largest); did you mean `largest`?"),
        ('[rules.ABC101]\nlargest = "1"', "`largest` must be a value such as 64, not '1'"),
        ("[rules.ABC102]\nlargest = 1", "there is no rule `ABC102`; did you mean `ABC101`?"),
        ("[rules.DLC001]\nlargest = 1", "DLC001 has no option `largest` (it has: none)"),
        ("[rules]\nABC101 = 1", "`rules` must be a table of rules, each with a table of options, not {'ABC101': 1}"),
    ],
)
def test_wrong_options_are_told_in_a_line(table: str, said: str, dlcheck: Dlcheck, tmp_path: Path) -> None:
    (tmp_path / "dlcheck.toml").write_text((tmp_path / "dlcheck.toml").read_text() + table + "\n")
    run = dlcheck("train.py")
    assert run.returncode == 2
    assert run.stderr.startswith("dlcheck: error: dlcheck.toml: ")
    assert run.stderr.endswith(said + "\n")


def test_nothing_is_imported_where_nobody_asked_for_it(dlcheck: Dlcheck, tmp_path: Path) -> None:
    """Isolated, in a pre-commit hook, and from the configuration of a folder that is only checked."""
    (tmp_path / "lint" / "own" / "checks.py").write_text(CHECKS + "\nopen('imported', 'w').close()\n")
    assert found(dlcheck("train.py", *JSON, "--isolated")) == []
    assert found(dlcheck("train.py", *JSON, PRE_COMMIT="1")) == []
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    assert found(dlcheck(str(tmp_path / "train.py"), *JSON, folder=outside)) == []
    assert not (tmp_path / "imported").exists()

    allowed = ("train.py", *JSON, "--allow-extra-rules")
    assert found(dlcheck(*allowed, PRE_COMMIT="1")) == ["ABC101 train.py:5"]
    assert found(dlcheck(*allowed, "--isolated")) == ["ABC101 train.py:5"]
    assert (tmp_path / "imported").exists()


def test_isolated_takes_only_the_rules_from_the_configuration(dlcheck: Dlcheck, tmp_path: Path) -> None:
    (tmp_path / "dlcheck.toml").write_text('extra-rules = ["lint/own"]\nignore = ["ALL"]\n')
    assert found(dlcheck("train.py", *JSON, "--isolated", "--allow-extra-rules")) == ["ABC101 train.py:5"]


@pytest.mark.parametrize(
    ("name", "text", "path", "line", "said"),
    [
        ("checks.py", "import nothing_of_this_name\n", "checks.py", 1, "ModuleNotFoundError"),
        ("checks.py", "x = = 1\n", "checks.py", 1, "SyntaxError"),
        ("checks.py", CHECKS + "\n1 / 0\n", "checks.py", 17, "ZeroDivisionError"),
        ("checks.py", CHECKS.replace("ABC101", "ABC102"), "checks.py", 0, "ABC101, ABC102: each rule needs both"),
        ("checks.py", CHECKS + "\nrule('DLC101')(big_batches)\n", "checks.py", 17, "DLC101 has two checks"),
        ("ABC101-big-batches.md", PAGE.replace('summary = "', 'sumary = "'), "", 0, "`summary` is missing"),
        ("ABC101-big-batches.md", PAGE.replace("ABC101", "DLC999"), "", 0, "codes that begin with DLC are taken"),
        ("ABC101-big-batches.md", PAGE.replace("big-batches", "missing-pin-memory"), "", 0, "is there already: DLC103"),
        ("checks.py", CHECKS + "\nraise SystemExit\n", "checks.py", 17, "SystemExit"),
        ("checks.py", CHECKS.replace("loader: Loader", "loader"), "checks.py", DECORATED, "must be annotated"),
        ("checks.py", CHECKS.replace('"ABC101")\ndef', "1)\ndef"), "checks.py", DECORATED, "TypeError"),
        (
            "checks.py",
            CHECKS + "\nfrom dlcheck.checks.registry import facts\nfacts(Loader, list)\n",
            "checks.py",
            18,
            "known",
        ),
        ("ABC101-big-batches.md", PAGE.replace("default = 64", "default = " + "9" * 5000), "", 0, "digits"),
        ("ABC101-big-batches.md", PAGE.replace("[option.largest]", "[[option.largest]]"), "", 0, "must be a table"),
        (
            "ABC101-big-batches.md",
            PAGE.replace("[option.largest]", "[variant]\na = 1\n[option.largest]"),
            "",
            0,
            "table",
        ),
        ("ABC101-big-batches.md", PAGE.replace('["https://example.com/batches"]', "[1]"), "", 0, "list of strings"),
        ("ABC102-big-batches.md", PAGE, "", 0, "its name is taken"),
        ("ABC101-big-batches.md", None, "", 0, "no page, such as"),
        ("checks.py", None, "", 0, "no `checks.py` here"),
    ],
)
def test_what_is_wrong_with_a_rule_is_told_and_the_others_go_on(
    name: str, text: str | None, path: str, line: int, said: str, dlcheck: Dlcheck, tmp_path: Path
) -> None:
    file = tmp_path / "lint" / "own" / name
    file.unlink(missing_ok=True)
    if text is not None:
        file.write_text(text)
    run = dlcheck("train.py", *JSON)
    assert run.returncode == 2
    assert "Traceback" not in run.stderr
    (told,) = errors(run)
    assert told["path"] == "lint/own" + (f"/{path}" if path else "")
    assert told["line"] == line
    assert said in told["message"]


@pytest.mark.parametrize("body", ["yield 'x'", "return 'x'", "raise SystemExit(0)", "return None"])
def test_a_check_that_is_none_is_told(body: str, dlcheck: Dlcheck, tmp_path: Path) -> None:
    head, _, _ = CHECKS.partition("    largest = ")
    (tmp_path / "lint" / "own" / "checks.py").write_text(f"{head}    {body}\n")
    run = dlcheck("train.py", *JSON)
    assert run.returncode == 2
    (told,) = errors(run)
    assert told["path"] == "lint/own/checks.py"
    assert told["message"].startswith("ABC101 failed: ")


@pytest.mark.parametrize("setting", ['select = ["ABC101", "DLC"]', "[rules.ABC101]\nlargest = 1"])
def test_what_is_said_of_rules_that_are_left_out_stops_nothing(setting: str, dlcheck: Dlcheck, tmp_path: Path) -> None:
    with open(tmp_path / "dlcheck.toml", "a") as stream:
        stream.write(setting + "\n")
    assert dlcheck("train.py", PRE_COMMIT="1").returncode == 0
    (tmp_path / "lint" / "own" / "checks.py").write_text("1 / 0\n")
    (told,) = errors(dlcheck("train.py", *JSON))
    assert "ZeroDivisionError" in told["message"]


@pytest.mark.parametrize("arguments", [("rule", "ABC101"), ("rules",)])
def test_a_date_as_an_option_is_shown(arguments: tuple[str, ...], dlcheck: Dlcheck, tmp_path: Path) -> None:
    (tmp_path / "lint" / "own" / "ABC101-big-batches.md").write_text(PAGE.replace("= 64", "= 2020-01-01"))
    assert "2020-01-01" in dlcheck(*arguments, *JSON).stdout


def test_a_missing_folder_is_told(dlcheck: Dlcheck, tmp_path: Path) -> None:
    (tmp_path / "dlcheck.toml").write_text('extra-rules = ["nowhere"]\n')
    run = dlcheck("train.py", *JSON)
    assert run.returncode == 2
    assert errors(run) == [{"path": "nowhere", "line": 0, "message": "extra rules: No such file or directory"}]


def test_a_check_that_raises_names_its_line(dlcheck: Dlcheck, tmp_path: Path) -> None:
    file = tmp_path / "lint" / "own" / "checks.py"
    file.write_text(CHECKS.replace("size.value.value > largest", "size.value.value > largest / 0"))
    (tmp_path / "train.py").write_text(
        TRAIN.replace("batch_size=100", "batch_size=100, num_workers=0, persistent_workers=True")
    )
    run = dlcheck("train.py", *JSON)
    assert run.returncode == 2
    assert found(run) == ["DLC203 train.py:5"]
    (told,) = errors(run)
    assert (told["path"], told["line"]) == ("lint/own/checks.py", 14)
    assert told["message"] == "ABC101 failed: ZeroDivisionError: division by zero"


def test_a_stub_for_a_rule_of_ones_own(dlcheck: Dlcheck, tmp_path: Path) -> None:
    run = dlcheck("new-rule", "ABC102", "small-batches", "--directory", "lint/own")
    assert run.returncode == 0
    assert "lint/own/checks.py" in run.stdout
    assert (tmp_path / "lint" / "own" / "ABC102-small-batches.md").exists()
    assert dlcheck("new-rule", "ABC103", "tiny-batches").returncode == 2
    assert dlcheck("new-rule", "ABC104", "odd-batches", "--directory", "lint/more").returncode == 0
    assert (tmp_path / "lint" / "more" / "ABC104-odd-batches.md").exists()
