"""The worker's side of the protocol: a request a line, an answer a line, whatever goes wrong.

The first line is the parent's: ``{"protocol": 1, ...}``.  Then ``{"cmd": "block", "arm": NAME}`` runs a block
of an arm (``"config"`` describes it), ``{"cmd": "facts"}`` tells what the data are like,
``{"cmd": "oracle", ...}`` counts, and ``{"cmd": "quit"}`` or the end of the stream ends it.
An answer with ``error`` says at which stage what failed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from .errors import told

PROTOCOL = 1


class Lines:
    """A channel over two text streams."""

    def __init__(self, reading: TextIO, writing: TextIO) -> None:
        self._reading = reading
        self._writing = writing

    def receive(self) -> dict[str, Any] | None:
        line = self._reading.readline()
        return json.loads(line) if line else None

    def send(self, message: dict[str, Any]) -> None:
        self._writing.write(json.dumps(message) + "\n")
        self._writing.flush()


def failure(stage: str, error: BaseException) -> dict[str, Any]:
    """An error as the parent is told of it."""
    return {"error": {"stage": stage, **told(error)}}


def ready(evidence: str, started: float) -> dict[str, Any]:
    import multiprocessing

    import torch

    return {
        "ready": True,
        "protocol": PROTOCOL,
        "evidence": evidence,
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "executable": sys.executable,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "mps": torch.backends.mps.is_available(),
        "start_method": multiprocessing.get_context().get_start_method(),
        "setup_s": time.perf_counter() - started,
    }


def serve(channel: Any, source: Any, started: float | None = None) -> None:
    """Answer requests about a source of loaders until there are no more."""
    begun = ready(source.evidence, time.perf_counter() if started is None else started)
    channel.send({**begun, "facts": source.facts()} if hasattr(source, "block") else begun)
    session = Session(source)
    while True:
        request = channel.receive()
        if request is None or request.get("cmd") == "quit":
            return
        channel.send(session.answer(request))


class Session:
    """What a worker keeps between requests: its arms."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.arms: dict[str, Any] = {}
        self._answers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "block": self._block,
            "facts": self._facts,
            "oracle": self._oracle,
        }

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = self._answers.get(request.get("cmd", ""))
        if answer is None:
            return failure("request", ValueError(f"no command `{request.get('cmd')}`"))
        try:
            return answer(request)
        except Exception as error:  # noqa: BLE001 -- the user's dataset may raise anything; the parent decides
            return failure(request["cmd"], error)

    def _block(self, request: dict[str, Any]) -> dict[str, Any]:
        if hasattr(self.source, "block"):  # an experiment with a device, which has its arms
            if request["arm"] not in self.source.arms:
                self.source.add(request["arm"], request["config"])
            known: dict[str, Any] = self.source.block(request["arm"])
            return known
        from . import blocks

        # Another config under the same name is another arm: its size was found out, say.
        name = json.dumps([request["arm"], request["config"]], sort_keys=True)
        if name not in self.arms:
            try:
                self.arms[name] = blocks.Arm(self.source, request["config"])
            except Exception as error:  # noqa: BLE001 -- an arm that cannot be built is a result
                return failure("build", error)
        result: dict[str, Any] = self.arms[name].block()
        return result

    def _facts(self, request: dict[str, Any]) -> dict[str, Any]:
        from . import facts

        if hasattr(self.source, "facts"):
            found: dict[str, Any] = self.source.facts()
            return found
        return facts.of(self.source, request.get("seconds", 2.0))

    def _oracle(self, request: dict[str, Any]) -> dict[str, Any]:
        from . import oracles

        return oracles.ask(request["name"], self.source, request.get("config", {}))
