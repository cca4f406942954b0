"""The user's own program, run with the shim in it: started, listened to, and ended with all that it started.

``run`` lets its loop be fed and timed; ``extract`` hands back the program stopped at its loader, which then answers
like any worker.  Neither changes the program, or a file of it: see ``shim/dlcheck_shim``.
"""

from __future__ import annotations

import contextlib
import filecmp
import json
import os
import queue
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import psutil

from dlcheck.measure.children import BLOCK_LIMIT_S, Failed, checked

SHIM = Path(__file__).parent / "shim"
VARIABLE = "DLCHECK_SHIM"
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
FOR_PYTHON = re.compile(r"-[a-zA-Z]*[IES]")

Event = dict[str, Any]
OnEvent = Callable[[Event], None]
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
    ) -> None:
        self.cwd = os.path.abspath(cwd or os.getcwd())
        self.shown = command if isinstance(command, str) else shlex.join(command)
        self.events: list[Event] = []
        self.connections: list[Connection] = []
        self.side_effects: dict[str, Any] = {}
        self.started = time.monotonic()
        self._words = command if isinstance(command, str) and shell else words(command)
        self._shell = shell
        self._spec = dict(spec)
        self._env = dict(os.environ if env is None else env)
        self._said: queue.Queue[tuple[Connection, Event]] = queue.Queue()
        self._readers: list[threading.Thread] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._open = True

    def __enter__(self) -> Program:
        self.folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="dlcheck-")))
        self._log = open(self.folder / "output.log", "wb")
        self._listener = socket.create_server(("127.0.0.1", 0))
        try:
            self._start()
        except BaseException:
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
            **self._spec,
            "protocol": PROTOCOL,
            "channel": {"host": host, "port": port, "token": token},
            "private": [str(self.folder)],
            "keep": str(self.folder / "kept"),
        }
        file = self.folder / "spec.json"
        file.write_text(json.dumps(spec), encoding="utf-8")
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
        self._open = False
        self._listener.close()
        if self._process is not None:
            end(self._process, str(self.folder / "spec.json"))
            while (said := self._last()) is not None:
                del said
        self._log.close()
        self.side_effects = self._undo()
        if not self.side_effects.get("not_restored"):
            shutil.rmtree(self.folder, ignore_errors=True)

    def _undo(self) -> dict[str, Any]:
        """Put back what the program changed; what it made anew stays, since it may have been dear: data, or a cache."""
        writes = [event["write"] for event in self.events if "write" in event]
        restored, lost, created, folders = [], [], [], []
        for write in writes:
            path = write["path"]
            if write["event"] == "os.mkdir" and write.get("new"):
                folders.append(path)
            elif write.get("new"):
                if _left_empty(path):
                    with contextlib.suppress(OSError):
                        os.remove(path)
                elif os.path.isfile(path):
                    created.append(path)
            elif "kept" in write or "size" in write:
                try:
                    if _put_back(path, write.get("kept"), write.get("size")):
                        restored.append(path)
                except OSError as error:
                    lost.append({"path": path, "copy": write.get("kept"), "why": error.strerror or str(error)})
        for folder in sorted(folders, key=len, reverse=True):
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # only where nothing is in it
        created += filter(os.path.isdir, folders)
        told = {
            "created": created,
            "restored": restored,
            "not_restored": lost,
            "changed": [write["path"] for write in writes if write.get("changed")],
            "denied": [write["path"] for write in writes if write.get("denied")],
            "other": [
                {"event": write["event"], "path": write["path"]}
                for write in writes
                if write["event"] != "open" and not write.keys() & {"new", "kept", "size", "denied"}
            ],
            "saves_stopped": max((end.get("saves", 0) for end in _ends(self.events)), default=0)
            or sum("save" in event for event in self.events),
        }
        return {name: value for name, value in told.items() if value}


def _ends(events: Sequence[Event]) -> Iterator[Event]:
    for event in events:
        yield from (event[kind] for kind in ("stopped", "ended") if kind in event)


def _left_empty(path: str) -> bool:
    with contextlib.suppress(OSError):
        return os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path) == 0
    return False


def _put_back(path: str, kept: str | None, size: int | None) -> bool:
    """Make a file what it was: from its copy, or by cutting off what was appended. Whether that was necessary."""
    if kept is not None:
        if os.path.isfile(path) and filecmp.cmp(kept, path, shallow=False):
            return False
        os.makedirs(os.path.dirname(path), exist_ok=True)
        beside = f"{path}.dlcheck"
        shutil.copy2(kept, beside)
        os.replace(beside, path)
        return True
    assert size is not None
    if os.path.isfile(path):
        if os.path.getsize(path) <= size:
            return False
        os.truncate(path, size)
        return True
    if size == 0:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).touch()
        return True
    raise FileNotFoundError(2, "it was appended to, and is gone", path)


def words(command: str | Sequence[str]) -> list[str]:
    """A command as a list, split as a shell does it; on Windows `\\` is part of a path."""
    if not isinstance(command, str):
        return list(command)
    if os.name == "nt":
        return [word.strip('"') for word in shlex.split(command, posix=False)]
    return shlex.split(command)


def end(process: subprocess.Popen[bytes], spec: str) -> None:
    """End a process and what it started, wherever that has gone: new sessions, and orphans of those that are dead.

    The process that cleans up after semaphores and shared memory goes last, by itself where it can.
    """
    with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    for attempt in range(4):
        found = _members(process.pid, spec)
        if not found:
            return
        trackers = [one for one in found if attempt < 2 and _is_tracker(one)]
        for member in found:
            if member not in trackers:
                with contextlib.suppress(psutil.Error):
                    member.kill()
        psutil.wait_procs(found, timeout=1.0)


def _members(session: int, spec: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid in (0, os.getpid()) or process.status() == psutil.STATUS_ZOMBIE:
                continue
            same = hasattr(os, "getsid") and os.getsid(process.pid) == session
            if same or process.environ().get(VARIABLE) == spec:
                found.append(process)
    return found


def _is_tracker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any("multiprocessing.resource_tracker" in word for word in process.cmdline())
    return False


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
) -> Outcome:
    """Run a command to the end of its measurement, of itself or of its time; never raises for what the program does."""
    program = Program(command, spec, cwd=cwd, env=env, shell=shell)
    try:
        with program:
            reason = _listen(program, budget_s, set_up_s, hello_s, on_event)
            status, output = program.status, program.output
    except Failed as failed:
        return Outcome("not-found", failed.message, None, False, (), "", 0.0)
    events = program.events
    reached = any("reached" in event for event in events)
    if reason == "ended" and status:
        reason = "failed"
    return Outcome(
        reason,
        sentence(reason, program, status, output, budget_s if reason == "time-limit" else set_up_s),
        status,
        reached,
        tuple(events),
        output,
        time.monotonic() - program.started,
        program.side_effects,
    )


def _listen(program: Program, budget_s: float, set_up_s: float, hello_s: float, on_event: OnEvent | None) -> Reason:
    reached = False
    while True:
        passed = time.monotonic() - program.started
        limits: dict[Reason, float] = {"time-limit": budget_s}
        if not reached:
            limits["set-up-limit"] = set_up_s
        if not program.connections:
            limits["no-hello"] = hello_s
        first: Reason = min(limits, key=lambda limit: limits[limit])
        if limits[first] <= passed:
            return first
        said = program.next(min(limits[first] - passed, 1.0))
        if said is None:
            if program.ended:
                return "ended" if program.connections else "no-hello"
            continue
        connection, event = said
        reached = reached or "reached" in event
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

    def send(self, message: Mapping[str, Any]) -> None:
        self._connection.send(message)

    def receive(self, limit_s: float = BLOCK_LIMIT_S) -> dict[str, Any]:
        """The next answer; what the shim tells in between is handed on as events."""
        until = time.monotonic() + limit_s
        while True:
            said = self.program.next(until - time.monotonic())
            if said is None:
                if self.program.ended:
                    raise Failed("process", "", f"the program ended{ending(self.program.status)}{self._last_words()}")
                raise Failed("block", "Timeout", f"no answer for {limit_s:.0f} s")
            connection, event = said
            if connection is self._connection and "answer" in event:
                self.program.events.pop()  # what is measured is kept by those who asked
                answer: dict[str, Any] = event["answer"]
                return answer
            if connection is self._connection and "trouble" in event and event["trouble"]["what"] == "serve":
                raise Failed("process", event["trouble"]["type"], event["trouble"]["message"])
            if self._on_event is not None:
                self._on_event({"pid": connection.pid, **event})

    def ask(self, request: Mapping[str, Any], limit_s: float = BLOCK_LIMIT_S) -> dict[str, Any]:
        self.send(request)
        return checked(self.receive(limit_s))

    @property
    def side_effects(self) -> Mapping[str, Any]:
        """What the program did outside; complete once it is closed."""
        return self.program.side_effects

    def close(self) -> None:
        self.send({"cmd": "quit"})
        until = time.monotonic() + 2
        while time.monotonic() < until and self.program.next(until - time.monotonic()) is not None:
            pass
        self.program.close()

    def _last_words(self) -> str:
        last = last_line(self.program.output)
        return f": {last}" if last else ""


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
) -> Extracted:
    """Run a command up to the first iteration of its loader; Failed, in one sentence, where it does not come there."""
    program = Program(command, {**spec, "mode": "extract"}, cwd=cwd, env=env, shell=shell)
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
                output = program.output
                raise Failed("program", "", sentence(reason, program, program.status, output, set_up_s))
            continue
        connection, event = said
        if on_event is not None:
            on_event({"pid": connection.pid, **event})
        if "reached" in event:
            extracted = Extracted(program, connection, on_event)
            extracted.reached = event["reached"]
            return extracted


# -- what went wrong, in one line


def sentence(reason: Reason, program: Program, status: int | None, output: str, limit_s: float) -> str:
    events = program.events
    reached = any("reached" in event for event in events)
    if reason == "breaks":
        told = next(event["breaks"] for event in events if "breaks" in event)
        when = {"build": "cannot be built", "start": "cannot start", "batch": "fails"}[told["stage"]]
        return f"the loader of arm {told['arm']} {when}: {told['type']}: {told['message']}"
    if reason == "unfit":
        told = next(event["unfit"] for event in events if "unfit" in event)
        return str(told["why"])
    stopped = next((str(event["stopped"]["why"]) for event in events if "stopped" in event), None)
    if stopped is not None:
        return stopped
    if reason == "no-hello":
        return _no_hello(program, status, output)
    if reason == "time-limit":
        return f"the program was ended after {limit_s:.0f} s{'' if reached else ', before it iterated the loader'}"
    loader = _loader(program)
    if reason == "set-up-limit":
        return f"the program did not iterate {loader} within {limit_s:.0f} s"
    raised = next((event["raised"] for event in reversed(events) if "raised" in event), None)
    error = f"{raised['type']}: {raised['message']}" if raised else last_line(output)
    if reason == "failed":
        when = "while it was measured" if reached else f"before it iterated {loader}"
        return f"the program ended{ending(status)} {when}{': ' + error if error else ''}"
    if reached:
        return "the program came to its end before enough was measured"
    return _not_iterated(program, loader)


def _no_hello(program: Program, status: int | None, output: str) -> str:
    given = words(program.shown) if not program._shell else []
    switch = next((word for word in given[1:] if FOR_PYTHON.match(word)), None)
    if switch is not None and "python" in os.path.basename(given[0]):
        return f"the program cannot be measured: `python {switch}` takes nothing from its environment"
    last = last_line(output)
    if status:
        return f"the command ended{ending(status)} before a Python started{': ' + last if last else ''}"
    return "the program does not take up the shim: it is no Python, or one with -I, -E or -S"


def _loader(program: Program) -> str:
    site = program._spec.get("site")
    return f"the DataLoader of {_short(site['file'], program)}:{site['line']}" if site else "a DataLoader"


def _not_iterated(program: Program, loader: str) -> str:
    loaders = [one for end in _ends(program.events) for one in end.get("loaders", [])]
    # A child of the program that builds loaders does not say how it ended.
    loaders = loaders or [{**event["built"], "built": 1} for event in program.events if "built" in event]
    unseen = sorted({name for end in _ends(program.events) for name in end.get("unseen", [])})
    if any(one["flagged"] for one in loaders):
        return f"{loader} was built, but not iterated"
    built = ", ".join(
        f"{_short(one['file'], program)}:{one['line']} ({one['dataset']}{_times(one['built'])})" for one in loaders[:5]
    )
    if built and program._spec.get("site"):
        return f"no DataLoader was built at {loader.rpartition(' ')[2]}; built: {built}"
    if built:
        return f"no DataLoader was iterated; built: {built}"
    hint = f"; loaders of {', '.join(unseen)} are not seen" if unseen else ""
    return f"the program built no DataLoader{hint}"


def _times(count: int) -> str:
    return f", {count} times" if count > 1 else ""


def _short(file: str, program: Program) -> str:
    root = os.path.realpath(program.cwd) + os.sep
    real = os.path.realpath(file)
    return real[len(root) :] if real.startswith(root) else file


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
