"""What a stretch of the loop is measured by besides its time: memory in use, or the time inside of one statement.

A gauge counts while the clock does, and tells at the end of each stretch what it has seen.
"""

from __future__ import annotations

import dis
import os
import sys
import time
from collections.abc import Iterator
from statistics import median
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from . import worker
from .spec import Site

if TYPE_CHECKING:
    from .session import Session

now = time.perf_counter


class Unreadable(Exception):
    """Why a gauge shows nothing in this program, for people."""


class Gauge:
    """None: time is all that counts."""

    def begin(self) -> None:
        """From here on it counts, until ``hold``."""

    def hold(self) -> None:
        pass

    def given(self) -> None:
        """The program is given its next batch."""

    def told(self, steps: int) -> dict[str, float]:
        """What a stretch of so many steps has shown, by the step; raises Unreadable where that is nothing."""
        return {}


class Memory(Gauge):
    """Bytes that the program has asked for and not given back, of the host and of a GPU."""

    def __init__(self) -> None:
        self._torch: Any = sys.modules["torch"]
        try:
            self._allocated = worker.allocated(self._torch)
        except OSError as why:
            raise Unreadable(str(why)) from None
        self._before = self._added = 0

    def begin(self) -> None:
        self._before = self._held()

    def hold(self) -> None:
        self._added += self._held() - self._before

    def told(self, steps: int) -> dict[str, float]:
        added, self._added = self._added, 0
        return {"added": added / steps}

    def _held(self) -> int:
        on_device = self._torch.cuda.memory_allocated() if self._torch.cuda.is_initialized() else 0
        return int(self._allocated.read() + on_device)


class Statement(Gauge):
    """Seconds inside of the statement at some lines, and of the steps that come by it.

    Where watching costs time, every second step is left alone: what both take tells how much that is.
    """

    def __init__(self, site: Site, folder: str) -> None:
        self._site = site
        self._folder = folder
        self._codes: dict[CodeType, bool] = {}
        self._inside: FrameType | None = None
        self._counts = self._watched = False
        self._since = self._spent = 0.0
        self._last: float | None = None  # when the step began, where it counts
        self._passed = 0
        self._usual: int | None = None  # how often a step comes by
        self._alone: list[float] = []  # seconds of steps that nobody watched
        self._shared: list[tuple[float, float]] = []  # of those that are: outside of the statement, and inside
        self._watch: Tracing | Monitoring = (Monitoring if hasattr(sys, "monitoring") else Tracing)(self)

    def begin(self) -> None:
        self._counts = True

    def hold(self) -> None:
        self._counts, self._last = False, None
        self._leave_alone()

    def given(self) -> None:
        at = now()
        if self._last is not None:
            step = at - self._last
            if self._watched:
                self._shared.append((step - self._spent, self._spent))
            else:
                self._alone.append(step)
        if not self._counts:
            return
        self._usual = self._usual or self._passed or None
        if self._watched and self._watch.COSTS:
            self._leave_alone()
        else:
            self._watched, self._passed, self._spent = True, 0, 0.0
            self._watch.begin(sys._getframe(1))
        # The first step that is watched is so to its end: when to leave off is not known yet.
        learns = self._watched and self._usual is None and self._watch.COSTS
        self._last = None if learns else now()

    def _leave_alone(self) -> None:
        self._watched, self._inside = False, None
        self._watch.end()

    def told(self, steps: int) -> dict[str, float]:
        outside, inside = zip(*self._shared) if self._shared else ((), ())  # noqa: B905 -- not in Python 3.9
        alone = self._alone or [sum(parts) for parts in self._shared]
        self._alone, self._shared = [], []
        if not any(inside):
            raise Unreadable("the program's steps do not come by the statement")
        return {"step": median(alone), "outside": median(outside), "inside": median(inside)}

    def holds(self, code: CodeType) -> bool:
        """Whether code has any of the lines."""
        held = self._codes.get(code)
        if held is None:
            file = os.path.realpath(os.path.join(self._folder, code.co_filename))
            lines = (line for _, line in dis.findlinestarts(code) if line is not None)
            held = self._codes[code] = any(self._site.holds(file, line) for line in lines)
        return held

    def running(self, frame: FrameType | None) -> Iterator[FrameType]:
        """The frames that have the lines and run already."""
        while frame is not None:
            if self.holds(frame.f_code):
                yield frame
            frame = frame.f_back

    def come_to(self, frame: FrameType, line: int | None) -> None:
        """A frame begins a line, or is left."""
        at = now()
        within = line is not None and self._site.first <= line <= self._site.last
        if self._inside is None:
            if within:
                self._inside, self._since = frame, at
        # Of a statement's own functions, such as a comprehension, it is the outermost that ends it.
        elif frame is self._inside and not within:
            self._inside = None
            self._spent += at - self._since
            self._passed += 1
            if self._watch.COSTS and self._passed == self._usual:
                self._watch.end()


class Tracing:
    """By trace functions: as long as there is one, all Python code of the thread is slower."""

    COSTS = True

    def __init__(self, statement: Statement) -> None:
        if sys.gettrace() is not None:
            raise Unreadable("the program is traced already, by a debugger or for its coverage")
        self._statement = statement

    def begin(self, frame: FrameType) -> None:
        for running in self._statement.running(frame):
            running.f_trace = self._step
        sys.settrace(self._call)

    def end(self) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._step if self._statement.holds(frame.f_code) else None

    def _step(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event != "exception":
            self._statement.come_to(frame, frame.f_lineno if event == "line" else None)
        return self._step


class Monitoring:
    """From Python 3.12 on: of the code that has the lines only, so that nothing else is slower."""

    COSTS = False
    NAME = "dlcheck"

    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        self._api: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
        self._tool = next((tool for tool in (4, 3) if self._api.get_tool(tool) is None), None)
        if self._tool is None:
            raise Unreadable("the program is monitored already, by several tools")
        self._api.use_tool_id(self._tool, self.NAME)
        events = self._api.events
        self._lines = events.LINE | events.PY_RETURN
        for event, told in (
            (events.PY_START, self._start),
            (events.LINE, self._line),
            (events.PY_RETURN, self._return),
        ):
            self._api.register_callback(self._tool, event, told)
        self._watched: list[CodeType] = []
        self._on = False

    def begin(self, frame: FrameType) -> None:
        if not self._on:
            self._on = True
            self._api.set_events(self._tool, self._api.events.PY_START)
            self._api.restart_events()
        for running in self._statement.running(frame):
            self._watch(running.f_code)

    def end(self) -> None:
        self._on = False
        self._api.set_events(self._tool, 0)
        for code in self._watched:
            self._api.set_local_events(self._tool, code, 0)
        self._watched.clear()

    def _watch(self, code: CodeType) -> None:
        if code not in self._watched:
            self._watched.append(code)
            self._api.set_local_events(self._tool, code, self._lines)

    def _start(self, code: CodeType, offset: int) -> Any:
        if self._statement.holds(code):
            self._watch(code)
        return self._api.DISABLE  # of this code: it is known now

    def _line(self, code: CodeType, line: int) -> None:
        self._statement.come_to(sys._getframe(1), line)

    def _return(self, code: CodeType, offset: int, value: Any) -> None:
        self._statement.come_to(sys._getframe(1), None)


def of(session: Session) -> Gauge:
    """The gauge that is wanted; raises Unreadable."""
    wanted = session.spec.segment.get("gauge")
    if wanted == "memory":
        return Memory()
    if wanted == "statement":
        patch = next(patch for patch in session.spec.patches if patch["kind"] == "timed")
        return Statement(Site(patch), session.folder)
    return Gauge()
