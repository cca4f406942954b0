"""``dlcheck lsp``: findings while typing, in every editor that speaks the language server protocol."""

from __future__ import annotations


def serve() -> None:
    """Speak the protocol on standard input and output until the client ends it.

    Raises ModuleNotFoundError where pygls is not installed.
    """
    from dlcheck.lsp.server import create

    create().start_io()
