"""The command line: the only part that prints or exits.

A module holds a command, or a few of a kind, and is imported where one of them is called.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import warnings
from typing import Any

import click

from dlcheck import __version__, pages
from dlcheck.cli.speaking import complain, discard, tell_now
from dlcheck.config import ConfigError, suggestion

# In the order of the help: the module of each command, and its name there.
COMMANDS = {
    "check": ("check", "check"),
    "measure": ("measuring", "measure"),
    "env": ("advising", "env"),
    "advise": ("advising", "advise"),
    "baseline": ("baseline", "baseline_command"),
    "config": ("project", "config_command"),
    "clean": ("project", "clean"),
    "rule": ("rules", "rule"),
    "rules": ("rules", "rules"),
    "lsp": ("editors", "lsp"),
    "new-rule": ("rules", "new_rule"),
    "tune": ("tuning", "tune"),
}


def main() -> None:
    """The program ``dlcheck``."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 -- for as long as the process lives
    # Python warns of odd code whenever it reads some: that of others is for rules to judge.
    warnings.simplefilter("ignore", SyntaxWarning)
    for stream in (sys.stdout, sys.stderr):
        # A path or a message that the terminal's encoding lacks must not stop a report.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(_status())


def _status() -> int:
    try:
        status = cli.main(prog_name="dlcheck", standalone_mode=False) or 0
        if not sys.stdout.closed:  # the language server has closed it
            sys.stdout.flush()
    except click.ClickException as error:
        _show(error)
        return error.exit_code
    except (ConfigError, pages.PageError) as error:
        complain(f"error: {error}")
        return 2
    except (KeyboardInterrupt, click.Abort):
        complain("interrupted")
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter's own flush at exit must not complain either.
        discard(sys.stdout)
        return 141
    except OSError as error:  # the disk that standard output goes to is full, the current folder is gone
        complain(f"error: {error.filename + ': ' if error.filename else ''}{error.strerror or error}")
        discard(sys.stdout)
        return 2
    except Exception as error:  # noqa: BLE001 -- a fault of our own exits with 2, never with what means a finding
        from dlcheck.engine import internal_error

        complain(f"error: {internal_error(error)}")
        return 2
    return int(status)


def _show(error: click.ClickException) -> None:
    from dlcheck.harmless import harmless

    text = io.StringIO()
    error.show(text)  # of a Fault nothing is left to be said
    tell_now("\n".join(map(harmless, text.getvalue().split("\n"))), end="")


class Commands(click.Group):
    """Commands by name; anything else that can be meant for ``check`` goes there."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or self._is_for_check(args[0]):
            args = ["check", *args]
        return super().parse_args(ctx, args)

    def _is_for_check(self, word: str) -> bool:
        if word in COMMANDS or word in ("-h", "--help", "-V", "--version"):
            return False
        looks_like_a_path = "." in word or "/" in word or os.sep in word
        return word.startswith("-") or looks_like_a_path or os.path.lexists(word)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] not in COMMANDS:
            raise click.UsageError(f"no command and no file `{args[0]}`{suggestion(args[0], COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(f"dlcheck.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="dlcheck %(version)s")
def cli() -> None:
    """Find what is slow, wrong or about to crash in PyTorch input pipelines.

    `dlcheck train.py` is `dlcheck check train.py`; without a path, the current folder is checked.
    """
