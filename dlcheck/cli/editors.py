"""``dlcheck lsp``."""

from __future__ import annotations

import sys

import click

from dlcheck.cli.speaking import Fault


@click.command()
def lsp() -> None:
    """Speak the language server protocol on standard input and output, for editors.

    It needs pygls: `pip install "dlcheck[lsp]"`.
    """
    from dlcheck.lsp import serve

    if sys.stdin is None:
        raise Fault("standard input is closed")
    try:
        serve()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise Fault('the language server needs pygls: `pip install "dlcheck[lsp]"`') from None
