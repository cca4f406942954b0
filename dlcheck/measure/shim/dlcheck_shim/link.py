"""The line to the parent: JSON lines over a loopback socket, each sent as it happens."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from .spec import PROTOCOL


class Link:
    """One connection a process: a forked child that has something to say opens its own."""

    def __init__(self, address: tuple[str, int], token: str, broken: Callable[[], NoReturn]) -> None:
        self.address = address
        self._broken = broken  # what is done when nobody listens any more
        self.quiet = False  # the ranks whose times nobody wants: all but the first
        self._token = token
        self._socket: socket.socket | None = None
        self._pid = 0
        self._lock = threading.Lock()
        self._rest = b""
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    @property
    def ours(self) -> bool:
        """Whether this process is the one that opened the connection."""
        return self._pid == os.getpid()

    def open(self) -> None:
        connection = socket.create_connection(self.address, timeout=10)
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket, self._pid, self._rest = connection, os.getpid(), b""
        self._write({"token": self._token})
        self._write(hello())

    def send(self, message: dict[str, Any]) -> None:
        if self.quiet:
            return
        try:
            self._write(message)
        except OSError:
            self._broken()

    def receive(self) -> dict[str, Any] | None:
        """The parent's next message; None when it has hung up."""
        while b"\n" not in self._rest:
            assert self._socket is not None
            try:
                some = self._socket.recv(65536)
            except OSError:
                return None
            if not some:
                return None
            self._rest += some
        line, self._rest = self._rest.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def _write(self, message: dict[str, Any]) -> None:
        data = json.dumps(message, default=str).encode() + b"\n"
        with self._lock:
            assert self._socket is not None
            self._socket.sendall(data)

    def _forked(self) -> None:
        # The lock may have been held by a thread that the child does not have.
        self._lock = threading.Lock()
        if self._socket is not None:
            self._socket.close()
        self._socket, self._pid = None, 0


class Answers:
    """The line as a worker sees it, whose answers must not be taken for what the shim says in between."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def receive(self) -> dict[str, Any] | None:
        return self._link.receive()

    def send(self, message: dict[str, Any]) -> None:
        self._link.send({"answer": message})


def hello() -> dict[str, Any]:
    return {
        "hello": 1,
        "protocol": PROTOCOL,
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "executable": sys.executable,
        "torch": getattr(sys.modules.get("torch"), "__version__", None),
        "argv": list(getattr(sys, "orig_argv", None) or getattr(sys, "argv", []))[:50],
        "rank": rank(),
    }


def rank() -> int:
    """This process's place among those that train together."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"):
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return 0


def world() -> int:
    """How many train together: as they have said, or as whoever started them has."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    size = os.environ.get("WORLD_SIZE", "") if "RANK" in os.environ else ""
    return int(size) if size.isdigit() else 1
