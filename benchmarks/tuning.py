"""Does a search find what a sweep finds, in less time?  Six workloads, each tuned and then swept.

    python benchmarks/tuning.py [--python PATH] [--only images,...] [--workers 0,1,2,3] [--prefetch 2,4] [--budget 120]

Workloads (`tuning_loads.py`): images, tensors, words, mapped, remote, heavy.  A sweep tries every setting as often as
the search tries a finalist, and knows nothing of a budget.  The least of so many noisy figures is too good to be true,
so where the sweep's best is not the choice, both are then tried in turn, three times as often: that decides.  Writes a
JSON line for each workload to FOLDER/tuning.jsonl as soon as it is there, and at the end a table in Markdown, with the
conditions that must hold and whether they did: the choice within 5 % of the sweep's best, all of it within the budget
that was announced, and of more than 50 settings at most a third of the sweep's time.  The exit status is 1 where one
did not.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dlcheck.advise.tuning.bounds import bounds
from dlcheck.advise.tuning.hosts import OfFactory
from dlcheck.advise.tuning.search import Race
from dlcheck.advise.tuning.setting import Setting, made
from dlcheck.advise.tuning.trying import Bench, Objective
from dlcheck.measure.machine import System

HERE = Path(__file__).resolve().parent
NAMES = ("images", "tensors", "words", "mapped", "remote", "heavy")
REGRET = 0.05
CLOSING_S = 3.0  # that the processes may take to end when the time is over
LARGE = 50
THIRD = 1 / 3
ROUNDS = 3


@dataclass(frozen=True)
class Line:
    """What came of one workload; seconds, but for ``regret``, a share of the sweep's best."""

    name: str
    settings: int
    choice: str
    best: str
    regret: float
    budget_s: float
    search_s: float
    wall_s: float
    sweep_s: float
    advice: str
    verdict: str

    @property
    def missed(self) -> list[str]:
        found = []
        if not self.regret <= REGRET:
            found.append(f"{self.name}: the choice is {self.regret:.1%} slower than the best of the sweep")
        if self.wall_s > self.budget_s + CLOSING_S:
            found.append(f"{self.name}: {self.wall_s:.0f} s, and {self.budget_s:.0f} s were announced")
        if self.settings > LARGE and self.search_s > THIRD * self.sweep_s:
            found.append(f"{self.name}: the search took {self.search_s / self.sweep_s:.0%} of the sweep's time")
        return found


def main() -> int:
    asked = arguments()
    asked.out.mkdir(parents=True, exist_ok=True)
    lines = []
    for name in asked.only:
        lines.append(one(name, asked))
        with open(asked.out / "tuning.jsonl", "a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(lines[-1])) + "\n")
    print("\n".join(table(lines)))
    missed = [said for line in lines for said in line.missed]
    print("\n".join(f"MISSED {said}" for said in missed) or "All conditions hold.")
    return 1 if missed else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(NAMES))
    parser.add_argument("--workers", type=numbers, default=(0, 1, 2, 3))
    parser.add_argument("--prefetch", type=numbers, default=(2, 4))
    parser.add_argument("--budget", type=float, default=120.0)
    parser.add_argument("--step-seconds", type=float, default=0.0)
    parser.add_argument("--out", type=Path, default=Path("tuning-results"))
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def one(name: str, asked: argparse.Namespace) -> Line:
    """Tune a workload, then sweep it."""
    found = tuned(name, asked)
    method = found["software"]["start_method"]
    every = sorted({made(w, p, False, method=method) for w in asked.workers for p in asked.prefetch}, key=_cost)
    started = time.monotonic()
    known = swept(name, every, found["step"], asked)
    sweep_s = time.monotonic() - started
    chosen = found["chosen"]
    taken = made(chosen["num_workers"], chosen["prefetch_factor"], False, method=method) if chosen else None
    best = min(known, key=lambda setting: known[setting])
    regret = math.inf
    if taken is not None and taken in known:
        faced = swept(name, [taken, best], found["step"], asked, ROUNDS) if taken != best else known
        regret = faced[taken] / faced[best] - 1
    cost = found["cost"]
    return Line(
        name,
        found["grid"]["settings"],
        taken.short if taken else "none",
        best.short,
        regret,
        cost["budget_s"],
        cost["search_s"],
        cost["wall_s"],
        sweep_s,
        found["advice"] or "",
        found["proof"]["verdict"] if found["proof"] else "",
    )


def _cost(setting: Setting) -> tuple[int, int, bool, bool, str]:
    return setting.cost


def tuned(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    """The record of a search, as anybody would start it."""
    words = [sys.executable, "-m", "dlcheck", "tune", "--factory", f"tuning_loads:{name}", "--python", asked.python]
    for option, given in (("--workers", asked.workers), ("--prefetch", asked.prefetch)):
        words += [option, ",".join(map(str, given))]
    words += ["--budget", str(asked.budget), "--seed", str(asked.seed), "--no-records", "--output-format", "json"]
    words += ["--step-seconds", str(asked.step_seconds)] if asked.step_seconds else []
    path = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(words, cwd=HERE, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def swept(
    name: str, every: Sequence[Setting], step: Mapping[str, Any], asked: argparse.Namespace, rounds: int = 1
) -> dict[Setting, float]:
    """Seconds of a step of every setting, each tried in each round as often as a finalist of the search."""
    dice = random.Random(asked.seed)
    limits = bounds(System(), 1)
    opener = OfFactory(asked.python, f"tuning_loads:{name}", str(HERE), asked.seed, dice, limits, lambda: math.inf)
    bench = Bench(opener, step, Objective())
    race = Race(every, bench.try_, lambda: math.inf, dice, between=bench.renew)
    try:
        for _ in range(rounds):
            race.sweep()
    finally:
        bench.close()
    return {setting: median(blocks) for setting, blocks in race.trials.items()}


def table(lines: Sequence[Line]) -> Iterator[str]:
    yield "| workload | settings | choice | best of the sweep | regret | budget | search | all | sweep | advice |"
    yield "| --- | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"
    for one_ in lines:
        times = " | ".join(f"{value:.0f} s" for value in (one_.budget_s, one_.search_s, one_.wall_s, one_.sweep_s))
        said = f"{one_.advice} ({one_.verdict})"
        yield f"| {one_.name} | {one_.settings} | {one_.choice} | {one_.best} | {one_.regret:.1%} | {times} | {said} |"


if __name__ == "__main__":
    sys.exit(main())
