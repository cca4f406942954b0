"""dlcheck's findings in flake8, for teams that have only that: ``pip install dlcheck flake8`` is all it takes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from dlcheck import __version__


class Plugin:
    """Called by flake8 for each file, with its text as flake8 has read it.

    flake8 knows no severities: what does not reach ``fail-on`` of the configuration is left out.  Its own
    ``# noqa`` and ``--select`` hold, and so do dlcheck's comments and configuration.
    """

    name = "dlcheck"
    version = __version__

    def __init__(self, tree: object, filename: str, lines: Sequence[str]) -> None:
        self._file = os.path.abspath(filename if filename not in ("-", "stdin") else "__stdin__.py")
        self._text = "".join(lines)

    def run(self) -> Iterator[tuple[int, int, str, type[Any]]]:
        """Line (from 1), column (from 0), text and plugin of each finding."""
        from dlcheck import config, engine, files

        settings = config.load(os.path.dirname(self._file))
        report = engine.check([self._file], settings, overlays={self._file: self._text.encode("utf-8", "replace")})
        for finding in report.findings:
            # flake8 says itself what does not parse.
            if finding.code != engine.UNREADABLE and engine.exceeds([finding], settings):
                at = finding.place
                if at.path == files.shown(self._file):
                    yield at.line, at.column - 1, f"{finding.code} {finding.message}", type(self)
