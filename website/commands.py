"""The reference of the command line, from the help that the commands themselves give."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from html import escape

import click

from dlcheck.cli import cli
from dlcheck.sections import OTHERS, Sectioned


def names() -> list[str]:
    """The commands, in the order of `dlcheck --help`."""
    return [name for name in cli.list_commands(_top()) if not named(name).hidden]


def named(name: str) -> click.Command:
    """A command by its name."""
    command = cli.get_command(_top(), name)
    assert command is not None
    return command


def _top() -> click.Context:
    return click.Context(cli, info_name="dlcheck")


def index() -> str:
    """The page of `dlcheck` itself."""
    lines = ["# Commands", "", *_words(cli.help or ""), "", "| command | what it does |", "| --- | --- |"]
    lines += [f"| [`dlcheck {name}`]({name}.md) | {_cell(named(name).get_short_help_str(200))} |" for name in names()]
    lines += ["", "## Options", "", *_options(_top(), cli.get_params(_top()))]
    return "\n".join([*lines, ""])


def markdown(name: str) -> str:
    """The page of a command."""
    command = named(name)
    context = click.Context(command, info_name=name, parent=_top())
    usage = command.get_usage(context).removeprefix("Usage: ")
    lines = [f"# dlcheck {name}", "", "```text", usage, "```", "", *_words(command.help or ""), ""]
    elsewhere = command.elsewhere if isinstance(command, Sectioned) else {}
    sections: dict[str, list[click.Parameter]] = {}
    for param in command.get_params(context):
        sections.setdefault(getattr(param, "section", OTHERS), []).append(param)
    last = sections.pop(OTHERS, [])
    for title, params in [*sections.items(), (OTHERS, last)]:
        if title in elsewhere:
            lines += [f"## {title}", "", f"The same as those of [dlcheck {elsewhere[title]}]({elsewhere[title]}.md)."]
            lines += ["", ", ".join(f"`{param.opts[-1]}`" for param in params), ""]
        elif drawn := list(_options(context, params)):
            lines += [f"## {title if sections else 'Options'}", "", *drawn, ""]
    return "\n".join(lines)


def _words(help_: str) -> Iterator[str]:
    """The paragraphs of a help text; of one that click may not fill, its lines."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(help_)):
        lines = paragraph.removeprefix("\b\n")
        if lines == paragraph:
            yield paragraph
        else:
            yield f"```sh\n{lines}\n```" if lines.startswith("dlcheck ") else lines.replace("\n", "  \n")
        yield ""


def _options(context: click.Context, params: list[click.Parameter]) -> Iterator[str]:
    rows = [(param, record) for param in params if (record := param.get_help_record(context)) is not None]
    if rows:
        yield '<dl class="options">'
        for param, (written, said) in rows:
            anchor = escape(str(max(param.opts, key=len)).lstrip("-"))
            yield f'<dt id="option-{anchor}"><code>{escape(written)}</code></dt>'
            yield f"<dd>{_html(said)}</dd>"
        yield "</dl>"


def _html(text: str) -> str:
    """Words of a help text, with what stands in backquotes as code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text, quote=False))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
