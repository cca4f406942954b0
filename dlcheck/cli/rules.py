"""``dlcheck rule``, ``dlcheck rules`` and ``dlcheck new-rule``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from dlcheck import __version__, files, pages
from dlcheck.cli.options import complete_rule
from dlcheck.cli.settings import load_extra_rules
from dlcheck.cli.speaking import Fault, complain, say
from dlcheck.config import load, suggestion

if TYPE_CHECKING:
    from dlcheck.pages import Page


def _page(word: str) -> Page:
    word = f"DLC{word}" if word.isdigit() else word
    page = pages.find(word)
    if page is None:
        _own_rules()
        page = pages.find(word)
    if page is None:
        known = pages.load()
        words = [*known, *(page.name for page in known.values())]
        raise Fault(f"there is no rule `{word}`{suggestion(word, words)}")
    return page


def _own_rules() -> None:
    """Make the rules known that the configuration of the current folder names."""
    for problem in load_extra_rules(load()):
        complain(f"warning: {problem.path}: {problem.message}")


@click.command()
@click.argument("rule", metavar="CODE_OR_NAME", shell_complete=complete_rule)
@click.option("--output-format", "form", type=click.Choice(("text", "json")), default="text")
def rule(rule: str, form: str) -> None:
    """Show the page of a rule."""
    page = _page(rule)
    if form == "json":
        import json

        say(json.dumps(page.as_json(), indent=2, default=str))  # TOML has dates, JSON has none
        return
    by_default = "on by default" if page.default else "off by default"
    fix = "no fix" if page.fix == "none" else f"{page.fix} fix"
    say(f"# {page.name} ({page.code})\n")
    say(f"{page.summary}.\n")
    say(f"{' or '.join(page.severities)}, {page.confidence} confidence, {by_default}, {fix}, since {page.since}\n")
    say(page.documentation, end="")
    if page.options:
        say(f"\n## Options\n\nIn `[tool.dlcheck.rules.{page.code}]`:\n")
        for option in page.options.values():
            say(f"- `{option.name}` (default {option.default!r}): {option.help}")
    if page.references:
        say("\n## References\n")
        say("\n".join(f"- {reference}" for reference in page.references))


@click.command()
@click.option("--output-format", "form", type=click.Choice(("text", "json")), default="text")
def rules(form: str) -> None:
    """List all rules."""
    _own_rules()
    known = pages.load().values()
    if form == "json":
        import json

        rows = [{key: value for key, value in page.as_json().items() if key != "documentation"} for page in known]
        say(json.dumps(rows, indent=2, default=str))
        return
    table = [("code", "name", "severity", "default", "fix", "summary")]
    for page in known:
        default = "on" if page.default else "off"
        table.append((page.code, page.name, ", ".join(page.severities), default, page.fix, page.summary))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@click.command("new-rule")
@click.argument("code")
@click.argument("name")
@click.option(
    "--directory", type=click.Path(file_okay=False), help="The folder of the pages; made where it is missing."
)
def new_rule(code: str, name: str, directory: str | None) -> None:
    """Write the stub of a rule's page, and say where its check goes."""
    import errno

    from dlcheck import writing

    if not pages.is_code(code):
        raise click.BadParameter(f"`{code}` is not three capitals and three digits")
    if not pages.is_name(name):
        raise click.BadParameter(f"`{name}` is not words joined by hyphens")
    if directory == "":
        raise click.BadParameter("--directory is empty: name the folder of your rules")
    taken = pages.find(code) or pages.find(name)
    if taken is not None:
        raise Fault(f"{taken.code} is {taken.name}")
    if directory is None and not code.startswith("DLC"):
        raise click.BadParameter(f"`{code}` is no code of dlcheck's own: say with --directory where your rules lie")
    folder = directory or str(pages.folder())
    file = os.path.join(folder, f"{code}-{name}.md")
    try:
        os.makedirs(folder, exist_ok=True)
        if os.path.lexists(file):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        writing.replace(file, pages.stub(code, name, __version__).encode())
    except OSError as error:
        raise Fault(f"{files.shown(file)}: {error.strerror or error}") from None
    say(f"Wrote {files.shown(file)}.")
    if not code.startswith("DLC"):
        say(f'Write its check in {files.shown(os.path.join(folder, "checks.py"))}, under @rule("{code}").')
        return
    say(f'Write its check in dlcheck/checks/, under @rule("{code}"); the tests are the blocks of the page:')
    say(f"    pytest tests/test_pages.py -k {code}")
