"""The processes that are measured, seen from here: started in the user's interpreter, asked a line at a time."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import psutil

from dlcheck import files

PROTOCOL = 1
WORKER = Path(__file__).parent / "worker"
START_LIMIT_S = 300.0  # torch from a cold network disk takes its time
BLOCK_LIMIT_S = 600.0


class Failed(Exception):
    """A process that could not do what it was asked; ``stage`` says at what, ``place`` where in the user's code."""

    def __init__(self, stage: str, kind: str, message: str, place: str = "") -> None:
        said = ": ".join(filter(None, (kind, message)))
        super().__init__(f"{said} ({place})" if place else said)
        self.stage = stage
        self.kind = kind
        self.message = message
        self.place = place


def failed(told: Mapping[str, Any], stage: str = "block") -> Failed:
    """What a process told of an error."""
    place = f"{files.shown(told['file'])}:{told['line']}" if told.get("file") else ""
    return Failed(told.get("stage", stage), told.get("type", ""), told.get("message", ""), place)


class Host(Protocol):
    """What holds arms and runs their blocks: a child of ours, or the user's program stopped at its loader."""

    @property
    def ready(self) -> Mapping[str, Any]: ...

    def ask(self, request: Mapping[str, Any], limit_s: float = BLOCK_LIMIT_S) -> dict[str, Any]: ...

    def close(self) -> None: ...


def checked(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer that is no error."""
    error = answer.get("error")
    if error is not None:
        raise failed(error)
    return answer


class Child:
    """A worker process of ours, in a session of its own, so that all it starts ends with it.

    It is started at once, and waited for when somebody asks whether it is ``ready``: several start side by side.
    """

    def __init__(
        self,
        python: str,
        request: Mapping[str, Any],
        dice: random.Random,
        more: Mapping[str, str] | None = None,
        start_s: float = START_LIMIT_S,
    ) -> None:
        self._start_s = start_s
        self._log = tempfile.TemporaryFile(mode="w+", errors="replace")  # noqa: SIM115 -- closed with the child
        # What it and its workers leave behind when they are ended goes with the folder.
        self._folder = tempfile.mkdtemp(prefix=f"dlcheck-worker-{os.getpid()}-")
        try:
            self._process = subprocess.Popen(
                [python, str(WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                env={**_environment(dice, self._folder), **(more or {})},
                start_new_session=True,
            )
        except OSError as error:
            self._log.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise Failed("start", "", f"{python}: {error.strerror or error}") from None
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._tell({"protocol": PROTOCOL, **request})

    @property
    def pid(self) -> int:
        return self._process.pid

    @cached_property
    def ready(self) -> Mapping[str, Any]:
        """What it said of itself when it was; Failed where it did not come to that, and it is closed then."""
        try:
            return checked(self._answer(self._start_s, "start"))
        except BaseException:
            self.close()
            raise

    def ask(self, request: Mapping[str, Any], limit_s: float = BLOCK_LIMIT_S) -> dict[str, Any]:
        """Send a request and wait for its answer; Failed where that is an error, or none comes."""
        _ = self.ready
        self._tell(request)
        return checked(self._answer(limit_s))

    def close(self, patience_s: float = 2.0) -> None:
        """End it; ``patience_s`` is what it is given to end by itself, none where it hangs."""
        with contextlib.suppress(OSError, ValueError):
            self._tell({"cmd": "quit"})
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        end_tree(self._process)
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _tell(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass  # it has ended: the missing answer says so, with its last words

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError, OSError):  # closed under us at the end
            for line in self._process.stdout:
                self._answers.put(line)
        self._answers.put("")

    def _answer(self, limit_s: float, stage: str = "block") -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=limit_s)
        except queue.Empty:
            said = "not ready after" if stage == "start" else "no answer for"
            raise Failed(stage, "Timeout", f"{said} {limit_s:.0f} s") from None
        if not line:
            raise Failed("process", "", f"the process ended{self._status()}{self._last_words()}")
        try:
            answer = json.loads(line)
        except ValueError:
            raise Failed("process", "", f"the process answered with what is no JSON: {line.strip()[:100]!r}") from None
        if not isinstance(answer, dict):
            raise Failed("process", "", f"the process answered with what is no object: {line.strip()[:100]!r}")
        return answer

    def _status(self) -> str:
        try:
            status = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return ""
        if status < 0:
            with contextlib.suppress(ValueError):
                return f" by {signal.Signals(-status).name}"
        return f" with status {status}"

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read()[-4000:].splitlines() if line.strip()]
        return f": {lines[-1][:300]}" if lines else ""


def _environment(dice: random.Random, folder: str) -> dict[str, str]:
    """Ours, but with another hash seed and another size each time: both move a process's memory, and its speed."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {
        **kept,
        "PYTHONHASHSEED": str(dice.randrange(1, 2**32 - 1)),
        "DLCHECK_MEASURE": "1",
        **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder),
        "DLCHECK_PADDING": "x" * dice.randrange(4096),
    }


def end_tree(process: subprocess.Popen[str]) -> None:
    """End a process and all that it started, whatever they do about it."""
    try:
        members = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    except psutil.NoSuchProcess:
        members = []
    if hasattr(os, "killpg"):
        # Workers whose parent has ended are nobody's children any more, but still of its session.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    for member in members:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)


def is_python(program: str) -> bool:
    """Whether a program does what Python does."""
    try:
        found = subprocess.run([program, "-c", "print(6 * 7)"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return found.stdout.strip() == "42"


def interpreter(given: str | None, root: str) -> str | None:
    """The Python of the user's project: as given, of the active environment or of the project's folder."""
    if given:
        return shutil.which(given) or given
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    for folder in (active, os.path.join(root, ".venv"), os.path.join(root, "venv")):
        for name in ("bin/python", "Scripts/python.exe", "python.exe"):
            if folder and os.path.exists(found := os.path.join(folder, name)):
                return found
    return None


def reaching(known: str | None) -> dict[str, str]:
    """Our environment, in which `python` is the interpreter that was named, or that of the project."""
    path = os.environ.get("PATH", "")
    if known is not None and os.path.dirname(known):
        path = os.pathsep.join([os.path.dirname(os.path.abspath(known)), path])
    return {**os.environ, "PATH": path}
