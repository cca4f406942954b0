"""The documentation is true: its links lead somewhere, its commands do what it shows, its site has all pages."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest
import sessions
from sessions import DOCUMENTS, ROOT, Block, Play, Wrong

from dlcheck import pages
from dlcheck.checks import RULES
from dlcheck.config import KEYS
from dlcheck.measure import words
from website import commands, figures, generate, links, proofs, rules, settings, terminal

TUTORIAL = ROOT / "docs" / "tutorial.md"
LINKED = [
    *DOCUMENTS,
    *(ROOT / name for name in links.PLACES if name.endswith(".md") and ROOT / name not in DOCUMENTS),
    *sorted((ROOT / "rules").glob("DLC*.md")),
]


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


# Commands


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_each_block_says_how_it_is_run(document: Path) -> None:
    for block in sessions.blocks(document):
        assert block.is_run or not block.concerns_dlcheck or block.how.startswith("not run: ")
    list(sessions.stories(document))  # raises where a block goes on from none


STORIES = {story[0].place: story for file in DOCUMENTS if file != TUTORIAL for story in sessions.stories_or_none(file)}


def play(story: list[Block], folder: Path) -> Play:
    """Run a story, and compare what it shows."""
    stage = Play(folder)
    for block in story:
        outputs = stage.outputs(block)
        if block.kind == "console":
            assert sessions.shown(block, outputs) == block.text, "`python tests/sessions.py` writes it anew"
    return stage


needs_sh = pytest.mark.skipif(shutil.which("sh") is None, reason="some commands have pipes: no `sh` is here")


@needs_sh
@pytest.mark.parametrize("place", STORIES)
def test_commands_do_what_is_shown(place: str, tmp_path: Path) -> None:
    play(STORIES[place], tmp_path)


def test_tutorial_leads_from_the_faulty_example_to_the_fixed_one(tmp_path: Path) -> None:
    (story,) = sessions.stories(TUTORIAL)
    stage = play(story, tmp_path)
    assert re.findall(r"^## (\d+)\.", TUTORIAL.read_text(encoding="utf-8"), re.MULTILINE) == [
        str(n) for n in range(1, 11)
    ]
    reached, fixed = ({file.name: source(file) for file in folder.glob("*.py")} for folder in twins(stage))
    assert reached == fixed


def twins(stage: Play) -> tuple[Path, Path]:
    return stage.top / "examples" / "faulty", ROOT / "examples" / "fixed"


def source(file: Path) -> str:
    """The text of a file without the marks for tests."""
    return re.sub(r"  # DLC\d{3}.*$", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE)


def block_of(text: str) -> Block:
    (block,) = sessions.blocks(ROOT / "README.md", text)
    return block


def test_a_block_without_a_comment_is_noticed() -> None:
    assert not block_of("```sh\npip install torch\n```\n").is_run
    for text in ("```sh\ndlcheck train.py\n```\n", "<!-- not run: -->\n```console\n$ cat x | dlcheck -\n```\n"):
        with pytest.raises(Wrong, match="must say how it is run"):
            assert block_of(text).is_run


def test_another_status_and_another_output_are_noticed(tmp_path: Path) -> None:
    silent = block_of("<!-- run: in=examples/fixed -->\n```console\n$ dlcheck model.py\nNo findings in 2 files.\n```\n")
    with pytest.raises(AssertionError):
        play([silent], tmp_path / "1")
    with pytest.raises(Wrong, match="exits with 0, not 1"):
        play([block_of("<!-- run: in=examples/fixed exit=1 -->\n```sh\ndlcheck model.py\n```\n")], tmp_path / "2")


def test_a_change_that_does_not_fit_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    with pytest.raises(Wrong, match="fits in 2 places"):
        sessions.apply(block_of("```diff\n--- a.py\n+++ a.py\n@@\n-x = 1\n+x = 2\n```\n"), tmp_path)


# Links


@pytest.mark.parametrize("document", LINKED, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    assert list(broken(document, document.read_text(encoding="utf-8"))) == []


def broken(document: Path, text: str) -> Iterator[str]:
    """The links of a document that lead nowhere."""
    for target in links.relative(text):
        path, _, anchor = target.partition("#")
        file = document if not path else document.parent / path
        if not file.exists() or anchor and anchor not in links.anchors(file.read_text(encoding="utf-8")):
            yield target


def test_broken_links_are_noticed() -> None:
    text = "[a](docs/measure.md#figures) [b](docs/none.md) [c](docs/measure.md#none) `[d](none.md)` ![e](none.svg)"
    text += "\n```python\n[f](none.md)\n```\n[g](https://example.org/none)\n"
    assert list(broken(ROOT / "README.md", text)) == ["docs/none.md", "docs/measure.md#none", "none.svg"]


# Figures


def test_quoted_measurement_is_the_recorded_one() -> None:
    line = words.line(figures.record())
    assert f"   = measured: {line}\n" in TUTORIAL.read_text(encoding="utf-8")


# The picture


def test_picture_is_up_to_date() -> None:
    drawn = terminal.PICTURE.read_text(encoding="utf-8")
    assert drawn == terminal.drawing(terminal.output()), "`python -m website.terminal` draws it anew"
    ElementTree.fromstring(drawn)


def test_picture_shows_what_the_text_shows() -> None:
    shown = next(block for block in sessions.blocks(ROOT / "README.md") if block.kind == "console")
    plain = terminal.STYLE.sub("", terminal.output())
    assert shown.text == f"$ {terminal.COMMAND}\n{plain}"


# The site


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return generate.generated()


def test_each_rule_has_a_page(made: dict[str, str]) -> None:
    index = made["rules/index.md"]
    for page in pages.load().values():
        text = made[f"rules/{page.code}-{page.name}.md"]
        assert text.startswith(f"# {page.name} ({page.code})\n\n{page.summary}.\n")
        assert "\n## Fix safety\n" in text
        assert "More cases" not in text
        assert "```toml\nsummary" not in text
        assert all(option in text for option in page.options)
        assert f"({page.code}-{page.name}.md)" in index


def test_each_command_has_a_page_with_all_its_options(made: dict[str, str]) -> None:
    assert set(commands.names()) >= {"check", "rule", "rules", "measure", "advise", "env", "config", "lsp"}
    for name in commands.names():
        text = made[f"commands/{name}.md"]
        options = [param.opts[-1] for param in commands.named(name).params if isinstance(param, click.Option)]
        assert [option for option in options if option not in text] == []
        assert f"[`dlcheck {name}`]({name}.md)" in made["commands/index.md"]


def test_each_key_of_the_configuration_is_told(made: dict[str, str]) -> None:
    told = re.findall(r"^## (\S+)$", made["configuration.md"], re.MULTILINE)
    assert told == [key for key in settings.schema()["properties"] if key != "$schema"]
    assert set(told) >= set(KEYS)


def test_each_rule_is_proven_or_says_why_not(made: dict[str, str]) -> None:
    assert set(RULES) == set(proofs.proven()) | set(proofs.not_on_a_cpu())
    assert all(code in made["proofs.md"] for code in RULES)


def test_menu_has_each_page_once(made: dict[str, str]) -> None:
    named = list(leaves(generate.navigation(made)))
    assert sorted(named) == sorted({*made, *generate.written()})


def leaves(menu: Any) -> Iterator[str]:
    if isinstance(menu, str):
        yield menu
    else:
        for one in menu.values() if isinstance(menu, dict) else menu:
            yield from leaves(one)


def test_links_of_the_site_lead_to_its_pages(made: dict[str, str]) -> None:
    docs = {name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in generate.written()}
    site = {**made, **{name: generate.document(text, f"docs/{name}") for name, text in docs.items()}}
    nowhere = []
    for page, text in site.items():
        for target in links.relative(text):
            path, _, anchor = target.partition("#")
            to = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
            if to in site:
                leads = not anchor or anchor in links.anchors(site[to])
            else:
                leads = (ROOT / "docs" / to).is_file()
            if not leads:
                nowhere.append((page, target))
    assert nowhere == []


def test_what_is_no_page_is_named_and_not_linked() -> None:
    text = (
        "[the tests](../tests/test_docs.py), [`cache.py`](../dlcheck/cache.py), [start](../README.md#use), [here](#x)"
    )
    told = "the tests (`tests/test_docs.py`), `dlcheck/cache.py`, [start](index.md#use), [here](#x)"
    assert links.rewritten(text, "docs/a.md", "a.md") == told


# The drawings


def test_drawings_are_well_formed() -> None:
    for draw in figures.FIGURES.values():
        ElementTree.fromstring(draw())


def test_each_drawing_is_shown() -> None:
    named = {name for file in DOCUMENTS for name in figures.COMMENT.findall(file.read_text(encoding="utf-8"))}
    assert named == set(figures.FIGURES)


def test_worlds_are_those_of_the_example() -> None:
    found = {(row.chosen["--distributed"], row.options["shuffle"], row.options["sampler"]) for row in figures.worlds()}
    assert found == {
        ("default", "True", "None (torch's default)"),
        ("other", "None (torch's default)", "DistributedSampler(…)"),
    }


def test_implied_arrows_are_left_out() -> None:
    arrows = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert figures.reduced(arrows) == {"a": {"b"}, "b": {"c"}, "c": set()}
    assert figures.layers(arrows) == {"a": 0, "b": 1, "c": 2}


@pytest.mark.slow
def test_mkdocs_has_no_warning(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the site is built with the extra `docs`")
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},  # that the theme has a successor is no fault of the pages
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "WARNING" not in run.stderr
    assert (tmp_path / "rules" / "DLC101-blocking-transfer-of-pinned-batch.html").is_file()
    assert rules.FAMILIES["1"] in (tmp_path / "rules" / "index.html").read_text(encoding="utf-8")
