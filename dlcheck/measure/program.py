"""The user's own program, run with the shim in it: started, listened to, and ended with all that it started.

``run`` lets its loop be fed and timed; ``extract`` hands back the program stopped at its loader, which then answers
like any worker.  Neither changes the program, or a file of it: see ``shim/dlcheck_shim``.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import queue
import re
import secrets
import shlex
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import psutil

from dlcheck.measure import interruptions, leftovers, processes, undoing
from dlcheck.measure.children import BLOCK_LIMIT_S, Failed, checked, failed
from dlcheck.measure.endings import Ending, ending, ends, last_line
from dlcheck.measure.processes import VARIABLE

SHIM = Path(__file__).parent / "shim"
PROTOCOL = 1
HELLO_S = 60.0
SET_UP_S = 300.0
TAIL = 20  # lines of the program's output that are worth showing

# Trackers that would tell somebody of a run that is none.
SILENCED = {
    "WANDB_MODE": "disabled",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DLCHECK_MEASURE": "1",
}
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
KEPT = 1 << 30  # bytes that one start may have copied aside

Event = dict[str, Any]
OnEvent = Callable[[Event], None]
OnEffects = Callable[[Mapping[str, Any]], None]  # hears what a program did outside, when that is undone
Reason = Literal[
    "stopped",  # all that was wanted has been measured
    "breaks",  # an arm could not be built or run
    "unfit",  # the loop is not one that can be measured this way
    "ended",  # the program came to its end, with or without having reached the loader
    "failed",  # it ended with an error
    "time-limit",
    "set-up-limit",  # the loader was not reached in time
    "no-hello",
    "not-found",
]

STOPS: Mapping[str, Reason] = {
    "segments": "stopped",
    "batches": "stopped",
    "seconds": "stopped",
    "breaks": "breaks",
    "unfit": "unfit",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ended, in one sentence, and all that it said on the way."""

    reason: Reason
    sentence: str
    status: int | None
    reached: bool
    events: Sequence[Event]
    output: str  # its last lines
    seconds: float
    side_effects: Mapping[str, Any] = field(default_factory=dict)

    def all(self, kind: str) -> list[Any]:
        return [event[kind] for event in self.events if kind in event]


class Connection:
    """One process of the program, as far as it talks."""

    def __init__(self, stream: socket.socket, hello: Event) -> None:
        self.hello = hello
        self.pid: int = hello["pid"]
        self._stream = stream

    def send(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # that it has ended is seen by its silence
            self._stream.sendall(json.dumps(message).encode() + b"\n")


class Program:
    """A command with the shim in its environment; as a context it leaves nothing behind."""

    def __init__(
        self,
        command: str | Sequence[str],
        spec: Mapping[str, Any],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        shell: bool = False,
        on_effects: OnEffects = lambda told: None,
    ) -> None:
        self.cwd = os.path.abspath(cwd or os.getcwd())
        self.shown = command if isinstance(command, str) else shlex.join(command)
        self.events: list[Event] = []
        self.connections: list[Connection] = []
        self.side_effects: dict[str, Any] = {}
        self._on_effects = on_effects
        self.started = time.monotonic()
        self._env = dict(os.environ if env is None else env)
        self._words: str | list[str] = ""
        if isinstance(command, str) and shell:
            self._words = command
        else:
            assigned, self._words = assignments(words(command))
            self._env.update(assigned)
        self._shell = shell
        self._spec = dict(spec)
        self._root = leftovers.root_of(self.cwd)
        trees = undoing.trees(self.cwd, self._root) if self._spec.get("audit") != "keep" else []
        self._scope = undoing.Scope(trees, undoing.caches(self._env))
        self._said: queue.Queue[tuple[Connection, Event]] = queue.Queue()
        self._readers: list[threading.Thread] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._open = True
        self._stamps: dict[str, list[int]] = {}

    def __enter__(self) -> Program:
        try:
            with interruptions.put_off():
                self.folder = Path(os.path.realpath(tempfile.mkdtemp(prefix=leftovers.PRIVATE)))
                self._note = leftovers.note(self._root, self.folder)
                self._journal = self._note.kept if self._note.open() else self.folder
                self._log = open(self.folder / "output.log", "wb")
                self._listener = socket.create_server(("127.0.0.1", 0))
                _open.append(self)
                self._start()
        except BaseException:
            if self in _open:
                self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        for name in ("tmp", "kept"):
            (self.folder / name).mkdir()
        token = secrets.token_hex(16)
        host, port = self._listener.getsockname()[:2]
        spec = {
            "audit": "log",
            "limit": KEPT,
            **self._spec,
            "protocol": PROTOCOL,
            "channel": {"host": host, "port": port, "token": token},
            "private": [str(self.folder)],
            "keep": str(self.folder / "kept"),
            "beside": str(self._note.kept) if self._journal == self._note.kept else None,
            "journal": str(self._journal),
        }
        file = self.folder / "spec.json"
        file.write_text(json.dumps(spec), encoding="utf-8")
        self._stamps = {"copies": leftovers.stamp(self.folder), "stamp": leftovers.stamp(self._journal)}
        self._note.write(**self._facts())
        threading.Thread(target=self._accept, args=(token,), daemon=True).start()
        options: dict[str, Any] = {"start_new_session": True}
        if os.name == "nt":
            options = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}  # type: ignore[attr-defined, unused-ignore]
        self.started = time.monotonic()
        try:
            self._process = subprocess.Popen(
                self._words,
                cwd=self.cwd,
                env=self._environment(str(file)),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                shell=self._shell,
                **options,
            )
        except OSError as error:
            name = self._words if isinstance(self._words, str) else self._words[0]
            raise Failed("start", "", f"cannot run `{name}`: {error.strerror or error}") from None

    def _facts(self) -> dict[str, Any]:
        """What somebody must know who comes after us, were we killed."""
        started = psutil.Process().create_time()
        return {
            "pid": os.getpid(),
            "started": started,
            "host": platform.node(),
            "folder": str(self.folder),
            **self._stamps,
            "scope": {"trees": self._scope.trees, "caches": self._scope.caches},
        }

    def _environment(self, spec: str) -> dict[str, str]:
        path = [str(SHIM), *filter(None, [self._env.get("PYTHONPATH", "")])]
        own = str(self.folder / "tmp")
        return {
            **self._env,
            **SILENCED,
            "MLFLOW_TRACKING_URI": (self.folder / "tmp" / "mlruns").as_uri(),
            "PYTHONPATH": os.pathsep.join(path),
            VARIABLE: spec,
            "TMPDIR": own,
            "TEMP": own,
            "TMP": own,
        }

    # -- listening

    def _accept(self, token: str) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return  # closed at the end
            reader = threading.Thread(target=self._read, args=(stream, token), daemon=True)
            self._readers.append(reader)
            reader.start()

    def _read(self, stream: socket.socket, token: str) -> None:
        connection = None
        with contextlib.suppress(OSError, ValueError), stream, stream.makefile("rb") as lines:
            if json.loads(lines.readline()) != {"token": token}:
                return
            hello = json.loads(lines.readline())
            connection = Connection(stream, hello)
            self.connections.append(connection)
            self._said.put((connection, hello))
            for line in lines:
                self._said.put((connection, json.loads(line)))

    def next(self, limit_s: float) -> tuple[Connection, Event] | None:
        """What a process of the program says next; None when it has nothing more to say, or not in time."""
        until = time.monotonic() + limit_s
        while True:
            left = until - time.monotonic()
            try:
                connection, event = self._said.get(timeout=max(0.0, min(left, 0.1)))
            except queue.Empty:
                if self.ended:
                    return self._last()
                if left <= 0:
                    return None
                continue
            self.events.append({"pid": connection.pid, **event})
            return connection, event

    def _last(self) -> tuple[Connection, Event] | None:
        """The program has ended: what is still on its way is read, but no longer waited for than that."""
        for reader in list(self._readers):
            reader.join(0.5)
        try:
            connection, event = self._said.get_nowait()
        except queue.Empty:
            return None
        self.events.append({"pid": connection.pid, **event})
        return connection, event

    @property
    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    @property
    def status(self) -> int | None:
        return None if self._process is None else self._process.poll()

    @property
    def output(self) -> str:
        """The last lines that the program printed."""
        with contextlib.suppress(OSError):
            self._log.flush()
            with open(self.folder / "output.log", "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 16384))
                lines = file.read().decode("utf-8", "replace").splitlines()
            return "\n".join(line.rstrip() for line in lines[-TAIL:])
        return ""

    # -- the end

    def close(self) -> None:
        """End the program and all that it started, put back what it changed, and remove what it was lent."""
        if not self._open:
            return
        with interruptions.put_off():
            self._open = False
            self._listener.close()
            if self._process is not None:
                processes.end(self._process, str(self.folder / "spec.json"))
                while (said := self._last()) is not None:
                    del said
            self._log.close()
            try:
                self._clean_up()
            finally:
                _open.remove(self)

    def _clean_up(self) -> None:
        try:
            self.side_effects = self._undo()
        except OSError as error:  # of our own files: the disk is full, say
            why = f"{error.strerror or error}: the next `dlcheck measure` goes on with it"
            lost = {"path": self._root, "copy": str(self._journal), "why": why}
            self.side_effects = {"not_restored": [lost]}
            self._on_effects(self.side_effects)
            return
        self._on_effects(self.side_effects)
        left = leftovers.copies(self.side_effects)
        self._note.remove(but=left)
        leftovers.discard(self.folder, left)

    def _undo(self) -> dict[str, Any]:
        """Put back what the program changed and remove what it made, before anybody else comes."""
        ended = self._note.write(**self._facts(), ended=time.time_ns())
        told = undoing.Undoing(self._journal, self._scope, ended).run()
        saves = max((end.get("saves", 0) for end in ends(self.events)), default=0)
        saves = saves or sum("save" in event for event in self.events)
        return {**told, "saves_stopped": saves} if saves else told

    def sentence(self, reason: Reason, limit_s: float) -> str:
        """How it ended, within a limit of seconds."""
        words_ = self._words if isinstance(self._words, list) else []
        site = self._spec.get("site")
        return Ending(reason, self.events, site, self.cwd, words_, self.status, self.output, limit_s).sentence


_open: list[Program] = []  # those that are not closed


def any_open() -> bool:
    return bool(_open)


def close_all() -> None:
    """Close what an interruption has kept from being closed, between its start and whoever would have closed it."""
    while _open:
        _open[-1].close()


def assignments(given: list[str]) -> tuple[dict[str, str], list[str]]:
    """`CUDA_VISIBLE_DEVICES=0 python train.py` as a shell takes it: what is assigned, and the words of the command."""
    count = next((at for at, word in enumerate(given) if not ASSIGNMENT.fullmatch(word)), len(given))
    found = {match[1]: match[2] for match in map(ASSIGNMENT.fullmatch, given[:count]) if match}
    return found, given[count:]


def words(command: str | Sequence[str]) -> list[str]:
    """A command as a list, split as a shell does it; on Windows `\\` is part of a path."""
    if not isinstance(command, str):
        return list(command)
    if os.name == "nt":
        return [word.strip('"') for word in shlex.split(command, posix=False)]
    return shlex.split(command)


# -- a program that is fed


def run(
    command: str | Sequence[str],
    spec: Mapping[str, Any],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    budget_s: float = 600.0,
    set_up_s: float = SET_UP_S,
    hello_s: float = HELLO_S,
    on_event: OnEvent | None = None,
    shell: bool = False,
    on_effects: OnEffects = lambda told: None,
) -> Outcome:
    """Run a command to the end of its measurement, of itself or of its time; never raises for what the program does."""
    program = Program(command, spec, cwd=cwd, env=env, shell=shell, on_effects=on_effects)
    try:
        with program:
            reason = _listen(program, budget_s, set_up_s, hello_s, on_event)
            status, output = program.status, program.output
            if reason == "ended" and status:
                reason = "failed"
            sentence = program.sentence(reason, budget_s if reason == "time-limit" else set_up_s)
    except Failed as failed:
        return Outcome("not-found", failed.message, None, False, (), "", 0.0)
    events = program.events
    reached = any("reached" in event for event in events)
    return Outcome(
        reason,
        sentence,
        status,
        reached,
        tuple(events),
        output,
        time.monotonic() - program.started,
        program.side_effects,
    )


def _lives_on(connection: Connection) -> bool:
    """Whether the process at the loader is there, though the one that was started has ended: a daemon."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(connection.pid).status() != psutil.STATUS_ZOMBIE
    return False


def _listen(program: Program, budget_s: float, set_up_s: float, hello_s: float, on_event: OnEvent | None) -> Reason:
    reached: Connection | None = None
    while True:
        passed = time.monotonic() - program.started
        limits: dict[Reason, float] = {"time-limit": budget_s}
        if reached is None:
            limits["set-up-limit"] = set_up_s
        if not program.connections:
            limits["no-hello"] = hello_s
        first: Reason = min(limits, key=lambda limit: limits[limit])
        if limits[first] <= passed:
            return first
        said = program.next(min(limits[first] - passed, 1.0))
        if said is None:
            if program.ended and not (reached and _lives_on(reached)):
                return "ended" if program.connections else "no-hello"
            continue
        connection, event = said
        reached = connection if reached is None and "reached" in event else reached
        if on_event is not None:
            on_event({"pid": connection.pid, **event})
        if "stopped" in event:
            # Ranks wait for each other: those that go on are ended here, and a launcher must not start new ones.
            return STOPS.get(event["stopped"]["why"], "ended")


# -- a program that is asked


class Extracted:
    """The program stopped at its loader: it answers what a worker of ours answers."""

    def __init__(self, program: Program, connection: Connection, on_event: OnEvent | None) -> None:
        self.ready: Mapping[str, Any] = {}
        self.reached: Mapping[str, Any] = {}
        self.program = program
        self._connection = connection
        self._on_event = on_event

    @property
    def pid(self) -> int:
        """Of the process that has the loader: the command's own may be a launcher."""
        return self._connection.pid

    def send(self, message: Mapping[str, Any]) -> None:
        self._connection.send(message)

    def receive(self, limit_s: float = BLOCK_LIMIT_S) -> dict[str, Any]:
        """The next answer; what the shim tells in between is handed on as events."""
        until = time.monotonic() + limit_s
        while True:
            said = self.program.next(until - time.monotonic())
            if said is None:
                if self.program.ended and not _lives_on(self._connection):
                    raise Failed("process", "", self._last_words())
                if time.monotonic() < until:
                    continue
                raise Failed("block", "Timeout", f"no answer for {limit_s:.0f} s")
            connection, event = said
            if connection is self._connection and "answer" in event:
                self.program.events.pop()  # what is measured is kept by those who asked
                answer: dict[str, Any] = event["answer"]
                return answer
            if connection is self._connection and "trouble" in event and event["trouble"]["what"] == "serve":
                raise failed(event["trouble"], "process")
            if self._on_event is not None:
                self._on_event({"pid": connection.pid, **event})

    def ask(self, request: Mapping[str, Any], limit_s: float = BLOCK_LIMIT_S) -> dict[str, Any]:
        self.send(request)
        return checked(self.receive(limit_s))

    @property
    def side_effects(self) -> Mapping[str, Any]:
        """What the program did outside; complete once it is closed."""
        return self.program.side_effects

    def close(self, patience_s: float = 2.0) -> None:
        """End it; ``patience_s`` is what it is given to end by itself, none where it hangs."""
        try:
            self.send({"cmd": "quit"})
            until = time.monotonic() + patience_s
            while time.monotonic() < until and self.program.next(until - time.monotonic()) is not None:
                pass
        finally:
            self.program.close()

    def _last_words(self) -> str:
        stopped = next((event["stopped"] for event in reversed(self.program.events) if "stopped" in event), None)
        if stopped is not None:
            return str(stopped["why"])
        last = last_line(self.program.output)
        return f"the program ended{ending(self.program.status)}{f': {last}' if last else ''}"


def extract(
    command: str | Sequence[str],
    spec: Mapping[str, Any],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    set_up_s: float = SET_UP_S,
    hello_s: float = HELLO_S,
    on_event: OnEvent | None = None,
    shell: bool = False,
    on_effects: OnEffects = lambda told: None,
) -> Extracted:
    """Run a command up to the first iteration of its loader; Failed, in one sentence, where it does not come there."""
    program = Program(command, {**spec, "mode": "extract"}, cwd=cwd, env=env, shell=shell, on_effects=on_effects)
    program.__enter__()
    try:
        extracted = _reached(program, set_up_s, hello_s, on_event)
        extracted.ready = checked(extracted.receive(set_up_s))
    except BaseException:
        program.close()
        raise
    return extracted


def _reached(program: Program, set_up_s: float, hello_s: float, on_event: OnEvent | None) -> Extracted:
    while True:
        passed = time.monotonic() - program.started
        limit = set_up_s if program.connections else min(hello_s, set_up_s)
        said = program.next(max(0.0, min(limit - passed, 1.0)))
        if said is None:
            reason: Reason | None = None
            if program.ended:
                reason = ("failed" if program.status else "ended") if program.connections else "no-hello"
            elif passed >= limit:
                reason = "set-up-limit" if program.connections else "no-hello"
            if reason is not None:
                raise Failed("program", "", program.sentence(reason, set_up_s))
            continue
        connection, event = said
        if on_event is not None:
            on_event({"pid": connection.pid, **event})
        if "reached" in event:
            extracted = Extracted(program, connection, on_event)
            extracted.reached = event["reached"]
            return extracted
