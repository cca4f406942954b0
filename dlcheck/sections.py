"""Help in sections: in one list of fifty options nobody finds any."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

OTHERS = "Other options"


def section(title: str, *options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Options that stand together under a title."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
            command.__click_params__[-1].section = title  # type: ignore[attr-defined]
        return command

    return add


class Sectioned(click.Command):
    """A command whose help has sections; of those that stand ``elsewhere``, by title, only the names are said."""

    def __init__(self, *arguments: Any, elsewhere: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.elsewhere = dict(elsewhere or {})

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        listed: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            row = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if row is not None:
                listed.setdefault(getattr(param, "section", OTHERS), []).append(row)
        last = listed.pop(OTHERS, [])
        for title, rows in [*listed.items(), (OTHERS, last)]:
            if rows and title not in self.elsewhere:
                with formatter.section(title):
                    formatter.write_dl(rows)
        for command in dict.fromkeys(self.elsewhere.values()):
            rows = [row for title in listed if self.elsewhere.get(title) == command for row in listed[title]]
            with formatter.section(f"As `dlcheck {command} --help` explains them"):
                _write_words(formatter, [f"{_name(row)}," for row in rows[:-1]] + [_name(rows[-1])])


def _write_words(formatter: click.HelpFormatter, words: Sequence[str]) -> None:
    """Lines that break between words, and not within the name of an option."""
    margin = " " * formatter.current_indent
    width = formatter.width - len(margin)
    lines = textwrap.wrap(" ".join(words), width, break_on_hyphens=False, break_long_words=False)
    formatter.write("".join(f"{margin}{line}\n" for line in lines))


def _name(row: Sequence[str]) -> str:
    """``--quiet`` of ``-q, --quiet``, and of `--color [auto|always]` what stands before its values."""
    return next(word for word in row[0].replace(",", " ").split() if word.startswith("--"))
