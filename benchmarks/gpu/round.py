"""One round: a fresh process that holds all arms of all cells, and times their blocks in turn.

Started by run.py; writes a JSON line for all that happens.  Each cell gets its part of the round's
time, and as many passes over its arms as fit; one at least, while the round's time lasts.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "dlcheck" / "measure" / "worker"))

import torch  # noqa: E402
from cells import SHARES, Cell, cells  # noqa: E402
from dlcheck_worker import gpu  # noqa: E402 -- these live in the folder that a worker runs from
from dlcheck_worker.device import backend_of  # noqa: E402
from dlcheck_worker.rig import Rig  # noqa: E402

CONTROL = "without_wait"
SHORTEST = 0.25  # of a block


class Report:
    """Lines for the parent, on a stream of their own: what workers print must not be among them."""

    def __init__(self) -> None:
        self._stream = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def say(self, **message: Any) -> None:
        self._stream.write(json.dumps(message) + "\n")
        self._stream.flush()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--round", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--device")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    end = STARTED + options.seconds
    report = Report()
    backend = backend_of(options.device)
    if backend.name == "cpu":
        torch.set_num_threads(1)  # several on a busy host wait for each other, and this is but a rehearsal
    torch.manual_seed(options.round)
    rig = Rig(backend)
    gc.collect()
    gc.freeze()  # else each collection before a block looks through all of torch, while the device cools down
    report.say(ready=options.round, facts=backend.facts(), setup_s=time.perf_counter() - STARTED)
    plan = list(cells(options.quick, options.memory))
    groups = list(dict.fromkeys(cell.group for cell in plan))
    for index, group in enumerate(groups):
        now = time.perf_counter()
        share = SHARES[group] / sum(SHARES[one] for one in groups[index:])
        report.say(group=group, before=backend.state())
        play([cell for cell in plan if cell.group == group], rig, report, now + (end - now) * share, end)
        backend.empty_cache()
        report.say(done=group, after=backend.state(), seconds=time.perf_counter() - STARTED)
    return 0


def play(mine: list[Cell], rig: Rig, report: Report, slot: float, end: float) -> None:
    """The cells of a group, in the time until ``slot``; where they take longer, later ones get shorter blocks."""
    latest, scale = slot + (end - slot) / 4, 1.0
    for number, cell in enumerate(mine):
        start = time.perf_counter()
        if start > latest:
            report.say(skipped=cell.name)
            continue
        share = max(0.0, slot - start) / (len(mine) - number)
        measure(cell, rig, report, start + share, scale)
        took = time.perf_counter() - start
        if took > share:
            scale = max(SHORTEST, scale * share / took)


def scaled(config: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """The settings with blocks of a fraction of their length."""
    shorter = {"block_s": config["block_s"] * scale} if "block_s" in config else {}
    steps = {"steps": max(4, round(config["steps"] * scale))} if "steps" in config else {}
    return {**config, **shorter, **steps}


def measure(cell: Cell, rig: Rig, report: Report, until: float, scale: float) -> None:
    """Warm-ups, then passes over the arms in an order of their own, every second one backwards."""
    arms = dict(cell.arms)
    if cell.control is not None:
        arms[CONTROL] = cell.control
    try:
        experiment = gpu.experiment(cell.experiment, {**scaled(cell.config, scale), "arms": arms}, rig.backend, rig)
        for arm in cell.arms if cell.warm_steps else ():
            experiment.block(arm, steps=cell.warm_steps)
        report.say(cell=cell.name, facts=experiment.facts())
        order = list(cell.arms)
        random.Random(f"{torch.initial_seed()} {cell.name}").shuffle(order)
        position, took = 0, 0.0
        for number in range(cell.passes):
            start = time.perf_counter()
            if number and start + took > until:
                break
            for arm in order if number % 2 == 0 else reversed(order):
                report.say(cell=cell.name, arm=arm, position=position, block=experiment.block(arm))
                position += 1
            took = time.perf_counter() - start
        if cell.control is not None:
            report.say(cell=cell.name, control=experiment.block(CONTROL))
    except Exception as error:  # noqa: BLE001 -- one cell that fails must not take the others with it
        report.say(cell=cell.name, error=f"{type(error).__name__}: {error}"[:500])


if __name__ == "__main__":
    sys.exit(main())
