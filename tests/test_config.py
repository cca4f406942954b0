"""Settings: where they come from, what they may be, and which rules they select."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tomli

from dlcheck import config, files, pages
from dlcheck.config import KEYS, Config, ConfigError, declared, load
from dlcheck.pages import Page

SCHEMA = json.loads((Path(config.__file__).parent / "dlcheck.schema.json").read_text())


def page(code: str, name: str, default: bool = True) -> Page:
    return Page(code, name, "", "", "", "warning", "high", default, "none", None, "0.1")


PAGES = {
    one.code: one
    for one in (
        page("DLC001", "unreadable-source"),
        page("DLC101", "blocking-transfer"),
        page("DLC102", "non-blocking"),
        page("DLC111", "host-tensor", default=False),
        page("DLC201", "synchronous-loading"),
    )
}


@pytest.mark.parametrize(
    ("in_file", "on_command_line", "expected"),
    [
        ({}, {}, "001 101 102 201"),
        ({"select": ["DLC1"]}, {}, "001 101 102 111"),
        ({"select": ["ALL"]}, {}, "001 101 102 111 201"),
        ({"select": ["synchronous-loading"]}, {}, "001 201"),
        ({"select": ["DLC101"], "ignore": ["DLC1"]}, {}, "001 101"),
        ({"select": ["DLC1"], "ignore": ["DLC101"]}, {}, "001 102 111"),
        ({"select": ["DLC101"], "ignore": ["blocking-transfer"]}, {}, "001"),
        ({"extend-select": ["DLC111"], "extend-ignore": ["DLC2"]}, {}, "001 101 102 111"),
        ({"ignore": ["DLC101"], "extend-ignore": ["DLC102"]}, {}, "001 201"),
        ({"ignore": ["ALL"]}, {}, ""),
        ({"ignore": ["DLC001"]}, {}, "101 102 201"),
        ({"select": ["DLC2"]}, {"select": ["DLC101"]}, "001 101"),
        ({"ignore": ["DLC101"]}, {"select": ["DLC101"]}, "001 101"),
        ({"select": ["DLC2"]}, {"extend-select": ["DLC101"]}, "001 101 201"),
        ({"select": ["DLC101", "DLC201"]}, {"ignore": ["DLC1"]}, "001 201"),
        ({"select": []}, {}, "001"),
    ],
)
def test_selection(in_file: dict[str, Any], on_command_line: dict[str, Any], expected: str) -> None:
    chosen = Config(settings=in_file, overrides=on_command_line).codes(PAGES)
    assert " ".join(sorted(code.removeprefix("DLC") for code in chosen)) == expected


def test_unknown_rules_are_told_with_a_suggestion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dlcheck.toml").write_text('ignore = ["synchronos-loading", "DLC101"]\nper-file-ignores = { "a" = ["zzz"] }\n')
    config = load(".", {"extend-select": ("DLC999",)})
    assert config.unknown_rules(lambda: PAGES) == [
        "dlcheck.toml: `ignore`: there is no rule `synchronos-loading`; did you mean `synchronous-loading`?",
        "dlcheck.toml: `per-file-ignores`: there is no rule `zzz`",
        "--extend-select: there is no rule `DLC999`",
    ]
    assert config.codes(PAGES) == {"DLC001", "DLC102", "DLC201"}


def test_unknown_rules_alone_cannot_be_selected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--select: .*`DLC9`"):
        Config(overrides={"select": ("DLC9",)}).unknown_rules(lambda: PAGES)
    (tmp_path / "dlcheck.toml").write_text('select = ["DLC9"]\n')
    with pytest.raises(ConfigError, match=r"dlcheck\.toml: `select`: .*`DLC9`"):
        load(str(tmp_path)).unknown_rules(lambda: PAGES)


def test_where_no_rule_is_named_no_page_is_read() -> None:
    def never() -> dict[str, Page]:
        raise AssertionError

    assert Config(overrides={"fail-on": "never"}).unknown_rules(never) == []


def test_a_file_as_an_editor_of_windows_saves_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b'\xef\xbb\xbf[tool.dlcheck]\r\nignore = ["DLC101"]\r\n')
    assert load(str(tmp_path)).codes(PAGES) == {"DLC001", "DLC102", "DLC201"}


def test_per_file_ignores(tmp_path: Path) -> None:
    table = {"scripts/*": ["DLC101"], "*_old.py": ["DLC2"], "!src/**": ["DLC102"]}
    settings = Config(root=str(tmp_path), settings={"per-file-ignores": table})

    def ignored(name: str) -> str:
        return " ".join(sorted(settings.ignored_in(str(tmp_path / name), PAGES)))

    assert ignored("src/a.py") == ""
    assert ignored("src/a_old.py") == "DLC201"
    assert ignored("scripts/a.py") == "DLC101 DLC102"
    assert ignored("scripts/deep/a.py") == "DLC101 DLC102"
    assert ignored("src/scripts/a.py") == ""


# Files


def write(folder: Path, **texts: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.toml").write_text(text)


def test_the_nearest_file_counts(tmp_path: Path) -> None:
    write(tmp_path, pyproject='[tool.dlcheck]\nfail-on = "info"\n')
    write(tmp_path / "a", pyproject="[project]\nname = 'a'\ndescription = 'dlcheck'\n")
    write(tmp_path / "b", pyproject='[tool.dlcheck]\nfail-on = "never"\n', dlcheck='fail-on = "error"\n')
    root = load(str(tmp_path))
    assert root.for_folder(str(tmp_path)).fail_on == "info"
    assert root.for_folder(str(tmp_path / "a" / "deep")).fail_on == "info"
    assert root.for_folder(str(tmp_path / "b")).fail_on == "error"
    assert root.for_folder(str(tmp_path / "b")).root == str(tmp_path / "b")
    assert load(str(tmp_path), isolated=True).for_folder(str(tmp_path)).fail_on == "warning"


def test_the_command_line_counts_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, dlcheck='fail-on = "info"\nbaseline = "known.json"\n')
    monkeypatch.chdir(tmp_path)
    settings = load(str(tmp_path), {"fail-on": "error"}, origins={"fail-on": "--fail-on"})
    assert settings.setting("fail-on") == ("error", "--fail-on")
    assert settings.setting("baseline") == ("known.json", "dlcheck.toml")
    assert settings.setting("min-confidence") == ("medium", "default")
    assert settings.baseline == str(tmp_path / "known.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("selct = []", "unknown key `selct`; did you mean `select`"),
        ("zzz = 1", "unknown key `zzz`"),
        ('select = "DLC1"', "`select` must be a list of rules"),
        ("select = [1]", "`select` must be a list of rules"),
        ('fail-on = "fatal"', "`fail-on` must be one of error, warning, info, never, not 'fatal'"),
        ("force-exclude = 1", "`force-exclude` must be true or false"),
        ("per-file-ignores = []", "`per-file-ignores` must be a table"),
        ('per-file-ignores = { "a" = "DLC1" }', "`per-file-ignores` must be a table"),
        ('target-torch = "two"', "`target-torch` must be a version"),
        ("target-torch = 2.4", "`target-torch` must be a version"),
        ('baseline = ""', "`baseline` must be the path"),
        ("select = [", "Invalid value"),
        ("select = []\nselect = []", "Cannot overwrite"),
    ],
)
def test_wrong_settings_are_told_in_one_line(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "dlcheck.toml").write_text(text)
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")) as caught:
        load(str(tmp_path))
    assert "dlcheck.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["[tool]\ndlcheck = 3\n", "[tool.dlcheck]\nselect = 1\n", "[tool.dlcheck\n"])
def test_wrong_pyproject(text: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"pyproject\.toml: "):
        load(str(tmp_path))


def test_a_broken_pyproject_without_our_table_is_none_of_our_business(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project\n")
    assert load(str(tmp_path)).fail_on == "warning"


def test_schema_and_code_agree(tmp_path: Path) -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert set(SCHEMA["properties"]) == set(KEYS)
    for key, kind in KEYS.items():
        told = SCHEMA["properties"][key]
        assert tuple(told.get("enum", ())) == kind.choices
        assert "default" not in told or told["default"] == Config().setting(key).value


@pytest.mark.parametrize(
    ("table", "valid"),
    [
        ({"select": ["ALL", "DLC", "DLC1", "DLC101", "missing-pin-memory"]}, True),
        ({"select": ["dlc101"]}, False),
        ({"per-file-ignores": {"tests/*": ["DLC1"]}, "target-torch": "2.4", "baseline": "b.json"}, True),
        ({"target-python": "3"}, False),
        ({"selct": []}, False),
        ({"force-exclude": "yes"}, False),
    ],
)
def test_schema(table: dict[str, Any], valid: bool) -> None:
    assert jsonschema.Draft7Validator(SCHEMA).is_valid(table) is valid


def test_formats_are_those_of_the_reports() -> None:
    from dlcheck.report import FORMATS

    assert config.OUTPUT_FORMATS == FORMATS


# Versions


@pytest.mark.parametrize(
    ("requirement", "oldest", "newest"),
    [
        ("torch", None, None),
        ("torch==2.1.0", (2, 1), (2, 1)),
        ("torch == 2.1.0+cu118", (2, 1), (2, 1)),
        ("torch==2.1.*", (2, 1), (2, 1)),
        ("torch==2", (2, 0), None),
        ("torch>=1.8", (1, 8), None),
        ("torch>=1.8,<2.5", (1, 8), (2, 4)),
        ("torch<2.5.1", None, (2, 5)),
        ("torch>=1.13, <2", (1, 13), (1, 13)),
        ("torch<3", None, None),
        ("torch<=2.4", None, (2, 4)),
        ("torch~=2.1", (2, 1), None),
        ("torch~=2.1.0", (2, 1), (2, 1)),
        ("torch[opt]>=2.0; python_version > '3.8'", (2, 0), None),
        ("torch>=2.0  # for compile", (2, 0), None),
        ("torch!=2.1,>=2.0", (2, 0), None),
        ("torchvision==0.15", None, None),
        ("torch-geometric==2.5", None, None),
        ("torch @ https://example.org/torch.whl", None, None),
    ],
)
def test_requirements(
    requirement: str, oldest: tuple[int, int] | None, newest: tuple[int, int] | None, tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text(f"numpy\n{requirement}\n-r other.txt\n")
    torch, _ = declared(str(tmp_path))
    assert (torch.oldest, torch.newest) == (oldest, newest)


@pytest.mark.parametrize(
    ("name", "text", "torch", "python"),
    [
        (
            "pyproject.toml",
            "[project]\ndependencies = ['torch>=2.1']\nrequires-python = '>=3.10,<3.14'",
            ((2, 1), None),
            ((3, 10), (3, 13)),
        ),
        (
            "pyproject.toml",
            "[project.optional-dependencies]\ngpu = ['numpy', 'torch==2.3.1']",
            ((2, 3), (2, 3)),
            (None, None),
        ),
        (
            "pyproject.toml",
            "[tool.poetry.dependencies]\ntorch = '^2.0'\npython = '>=3.9,<4'",
            ((2, 0), None),
            ((3, 9), None),
        ),
        (
            "pyproject.toml",
            "[tool.poetry.dependencies]\ntorch = {version = '2.2.0', source = 'pt'}",
            ((2, 2), (2, 2)),
            (None, None),
        ),
        (
            "setup.cfg",
            "[options]\npython_requires = >=3.8\ninstall_requires =\n    numpy\n    torch>=1.9\n",
            ((1, 9), None),
            ((3, 8), None),
        ),
        (
            "setup.py",
            "setup(python_requires='~=3.11.2', install_requires=['numpy', \"torch>=1.7,<=1.12\"])",
            ((1, 7), (1, 12)),
            ((3, 11), (3, 11)),
        ),
        ("requirements-dev.txt", "torch==1.13.1\n", ((1, 13), (1, 13)), (None, None)),
        ("pyproject.toml", "[project\n", (None, None), (None, None)),
        ("pyproject.toml", "project = 3\n[tool]\npoetry = []", (None, None), (None, None)),
    ],
)
def test_declared_versions(name: str, text: str, torch: Any, python: Any, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    told = declared(str(tmp_path))
    assert tuple((one.oldest, one.newest) for one in told) == (torch, python)


def test_options_count_more_than_declarations(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==1.13\n")
    settings = load(str(tmp_path), {"target-torch": "2.4", "target-python": "3.12"}, isolated=True)
    targets = settings.targets(str(tmp_path))
    assert (targets.torch, targets.python_min, targets.python_max) == ((2, 4), (3, 12), (3, 12))
    # Even --isolated knows what the project declares.
    assert load(str(tmp_path), isolated=True).targets(str(tmp_path)).torch == (1, 13)


def test_default_excludes_are_the_documented_ones() -> None:
    assert Config().setting("exclude").value is files.DEFAULT_EXCLUDE


def test_every_page_can_be_selected_by_name() -> None:
    known = pages.load()
    for one in known.values():
        assert Config(overrides={"select": (one.name,)}).codes(known) == {one.code, "DLC001"}


ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(
    {*ROOT.glob("*.md"), *(file for top in ("docs", "rules", "editors") for file in ROOT.glob(top + "/**/*.md"))}
)


def shown_configurations() -> list[Any]:
    """Every block of TOML in the documentation that configures dlcheck."""
    blocks: list[Any] = []
    for document in DOCUMENTS:
        for block in re.findall(r"^```toml\n(.*?)^```", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            if "[tool.dlcheck" in block:
                blocks.append(pytest.param(block, id=f"{document.name}-{len(blocks)}"))
    return blocks


def test_the_readme_shows_configurations() -> None:
    assert sum(str(block.id).startswith("README.md") for block in shown_configurations()) >= 1


@pytest.mark.parametrize("block", shown_configurations())
def test_what_the_documentation_shows_is_accepted(block: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(block, encoding="utf-8")
    settings = load(str(tmp_path))
    assert settings.file is not None
    assert set(settings.rule_options(pages.load())) >= set(settings.settings.get("rules", {}))
    assert settings.unknown_rules(pages.load) == []
    jsonschema.validate(tomli.loads(block)["tool"]["dlcheck"], SCHEMA)
