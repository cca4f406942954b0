"""A process that holds the arms of one round: started in the interpreter of the user's project.

Run as ``python FOLDER``: it imports the standard library, torch, and its neighbours in this folder.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from dlcheck_worker.serve import PROTOCOL, Lines, failure, serve

STARTED = time.perf_counter()


def main() -> int:
    # What the user's code prints must not be read as an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    channel = Lines(sys.stdin, answers)
    request = channel.receive()
    if request is None:
        return 0
    if request.get("protocol") != PROTOCOL:
        channel.send(failure("request", ValueError(f"this worker speaks protocol {PROTOCOL}")))
        return 2
    try:
        import torch
    except ImportError as error:
        channel.send(failure("import", error))
        return 3
    try:
        if request.get("seed") is not None:
            torch.manual_seed(request["seed"])
        source = make_source(request)
    except Exception as error:  # noqa: BLE001 -- a factory of the user may raise anything; the parent says it
        channel.send(failure("source", error))
        return 4
    serve(channel, source, STARTED)
    return 0


def make_source(request: dict[str, Any]) -> Any:
    from dlcheck_worker import sources

    if request.get("experiment"):
        from dlcheck_worker import gpu

        return gpu.source(request)
    if request.get("factory"):
        return sources.Factory(request["factory"], request.get("folder", os.getcwd()))
    return sources.Synthetic(request["dataset"], request.get("loader", {}))


if __name__ == "__main__":
    sys.exit(main())
