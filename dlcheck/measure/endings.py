"""How a program ended, in one sentence: what was not reached, and what stood in the way."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Event = Mapping[str, Any]

FOR_PYTHON = re.compile(r"-[a-zA-Z]*[IES]")
REFUSED = "(--audit deny)"  # the end of what the shim says when it refuses something
SHOWN = 5


@dataclass(frozen=True)
class Ending:
    """``reason`` is one of `program.Reason`; ``words`` are those of the command, none where a shell has read it."""

    reason: str
    events: Sequence[Event]
    site: Mapping[str, Any] | None  # of the flagged loader
    cwd: str
    words: Sequence[str]
    status: int | None
    output: str
    limit_s: float

    @property
    def reached(self) -> bool:
        return any("reached" in event for event in self.events)

    @property
    def sentence(self) -> str:
        if self.reason == "breaks":
            told = self._first("breaks")
            when = {"build": "cannot be built", "start": "cannot start", "batch": "fails"}[told["stage"]]
            return f"the loader of arm {told['arm']} {when}: {self._error(told)}"
        if self.reason == "unfit":
            return str(self._first("unfit")["why"])
        if (stopped := self._first("stopped")) is not None:
            return str(stopped["why"])
        if self.reason == "no-hello":
            return self._no_python()
        if self.reason == "time-limit":
            unreached = "" if self.reached else ", before it iterated the loader"
            return f"the program was ended after {self.limit_s:.0f} s{unreached}"
        if self.reason == "set-up-limit":
            return f"the program did not iterate {self._loader} within {self.limit_s:.0f} s{self._trouble()}"
        if self.reason == "failed":
            return self._failed()
        if self.reached:
            return "the program came to its end before enough was measured"
        return self._not_iterated()

    def _first(self, kind: str) -> Any:
        return next((event[kind] for event in self.events if kind in event), None)

    # -- errors

    def _failed(self) -> str:
        raised = next((event["raised"] for event in reversed(self.events) if "raised" in event), None)
        error = self._error(raised) if raised else last_line(self.output)
        when = "while it was measured" if self.reached else f"before it iterated {self._loader}"
        said = f"the program ended{ending(self.status)} {when}{': ' + error if error else ''}"
        if REFUSED in said and not self.reached and not self._came_by():
            # What was refused is why it ended, and perhaps not why it did not come there.
            return f"{said}; {self._file} was not run until then{self._trouble()}"
        return said + ("" if self.reached else self._trouble())

    def _error(self, told: Mapping[str, Any]) -> str:
        """``ValueError: no such split (data.py:12)``"""
        said = ": ".join(filter(None, (told["type"], told["message"])))
        return f"{said} ({self._short(told['file'])}:{told['line']})" if told.get("file") else said

    def _trouble(self) -> str:
        """What of ours failed in the program: then it is not the program's doing that nothing was seen."""
        for event in self.events:
            told = event.get("trouble")
            if told is not None:
                return f"; dlcheck could not watch {told['what']}: {self._error(told)}"
        return ""

    def _no_python(self) -> str:
        switch = next((word for word in self.words[1:] if FOR_PYTHON.match(word)), None)
        if switch is not None and "python" in os.path.basename(self.words[0]):
            return f"the program cannot be measured: `python {switch}` takes nothing from its environment"
        last = last_line(self.output)
        if self.status:
            return f"the command ended{ending(self.status)} before a Python started{': ' + last if last else ''}"
        return "the program does not take up the shim: it is no Python, or one with -I, -E or -S"

    # -- a loader that was not reached

    def _not_iterated(self) -> str:
        if trouble := self._trouble():
            return f"the program came to its end, and nothing was seen of its loaders{trouble}"
        loaders = [one for end in ends(self.events) for one in end.get("loaders", [])]
        # A child of the program that builds loaders does not say how it ended.
        loaders = loaders or [{**event["built"], "built": 1} for event in self.events if "built" in event]
        if any(one["flagged"] for one in loaders):
            return f"{self._loader} was built, but not iterated"
        built = ", ".join(self._built(one) for one in loaders[:SHOWN])
        if self.site and not self._came_by():
            return f"the program ended without running {self._file}{f'; built elsewhere: {built}' if built else ''}"
        if built and self.site:
            return f"no DataLoader was built at {self._loader.rpartition(' ')[2]}; built: {built}"
        if built:
            return f"no DataLoader was iterated; built: {built}"
        unseen = sorted({name for end in ends(self.events) for name in end.get("unseen", [])})
        hint = f"; loaders of {', '.join(unseen)} are not seen" if unseen else ""
        return f"the program built no DataLoader{hint}"

    def _built(self, one: Mapping[str, Any]) -> str:
        times = f", {one['built']} times" if one["built"] > 1 else ""
        return f"{self._short(one['file'])}:{one['line']} ({one['dataset']}{times})"

    def _came_by(self) -> bool:
        """Whether any process has run the file of the flagged loader; those that were killed have not told."""
        told = [end["came_by"] for end in ends(self.events) if "came_by" in end]
        has_file = bool(self.site and "file" in self.site)
        return any(told) or not told or not has_file

    @property
    def _file(self) -> str:
        return self._short(self.site["file"]) if self.site and "file" in self.site else "the flagged file"

    @property
    def _loader(self) -> str:
        if self.site and "built_by" in self.site:
            return f"the DataLoader of {self.site['built_by']}"
        return f"the DataLoader of {self._file}:{self.site['line']}" if self.site else "a DataLoader"

    def _short(self, file: str) -> str:
        root = os.path.realpath(self.cwd) + os.sep
        real = os.path.realpath(file)
        return real[len(root) :] if real.startswith(root) else file


def ends(events: Sequence[Event]) -> Iterator[Event]:
    """What processes said of themselves in the end."""
    for event in events:
        yield from (event[kind] for kind in ("stopped", "ended") if kind in event)


def ending(status: int | None) -> str:
    if status is None:
        return ""
    if status < 0:
        with contextlib.suppress(ValueError):
            return f" by {signal.Signals(-status).name}"
    return f" with status {status}"


def last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
