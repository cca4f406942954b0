"""The language server, but what says "slow" is checked, and what says "mending" mended, once a file `go` is there.

Until then a file `waits` says that it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from dlcheck.fixing import Fixed
from dlcheck.lsp import server
from dlcheck.lsp.checking import Checked, Checker
from dlcheck.lsp.documents import Document
from dlcheck.warm import Interrupted


class Patient(Checker):
    """Takes until it is told to go on, or not wanted any more."""

    def check(self, document: Document, overlays: Mapping[str, bytes], stop: Callable[[], bool]) -> Checked:
        wait(document, "slow", stop)
        return super().check(document, overlays, stop)

    def fixed(self, document: Document, overlays: Mapping[str, bytes], stop: Callable[[], bool]) -> Fixed:
        wait(document, "mending", stop)
        return super().fixed(document, overlays, stop)


def wait(document: Document, word: str, stop: Callable[[], bool]) -> None:
    folder = Path(document.file).parent
    while word in document.text and not (folder / "go").exists():
        (folder / "waits").touch()
        if stop():
            raise Interrupted
        time.sleep(0.01)


if __name__ == "__main__":
    made = server.create()
    made.checker = Patient()
    made.start_io()
