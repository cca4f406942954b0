"""Does measuring tell the truth on this machine? Known effects, known nothings, and A against itself many times over.

    python benchmarks/measuring.py [--python PATH] [--aa 50] [--out FOLDER] [--only PART,...]

Parts: `aa`, `strong`, `nothing`, `busy`.  Writes a JSON line for each run to FOLDER/measuring.jsonl as soon as it
is there, and at the end a table in Markdown, with the conditions that must hold and whether they did.  The exit
status is 1 where one did not.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dlcheck.measure import machine, verdict, workload
from dlcheck.measure.plan import BATCHES
from dlcheck.measure.record import Effect, Kind, Noise
from dlcheck.measure.runner import AGAIN, Comparison, Group, Outcome, Runner
from dlcheck.measure.statistics import BLOCKS, LEVEL, LOOKS

DECIDED = ("confirmed", "refuted-harmful")
LIMIT_S = 60.0


@dataclass(frozen=True)
class Case:
    """A pair of arms whose outcome is known beforehand, on any machine with two cores."""

    name: str
    expected: tuple[str, ...]
    written: Mapping[str, Any]
    suggested: Mapping[str, Any]
    dataset: Mapping[str, Any] = field(default_factory=lambda: {"kind": "shaped", "shape": (3, 64, 64)})
    kind: Kind = "ratio"
    sized: str = "epochs"
    blocks: int = BLOCKS
    warm_ups: int = 1
    control: Mapping[str, Any] | None = None
    parallel: bool = False


def loader(**options: Any) -> dict[str, Any]:
    return {"block": "epoch", "batches": BATCHES, "loader": {"batch_size": 16, **options}}


def persistent(method: str) -> Case:
    options = {"num_workers": 2, "multiprocessing_context": method}
    return Case(
        f"persistent workers, {method}",
        ("confirmed",),
        loader(**options, persistent_workers=False),
        loader(**options, persistent_workers=True),
        kind="additive",
    )


def first_batch(method: str) -> Case:
    """Written in the wrong direction, so that what is slower is the suggestion."""
    written, suggested = (
        {"block": "startup", "loader": {"batch_size": 16, "num_workers": 2, "multiprocessing_context": one}}
        for one in (method, "fork")
    )
    return Case(f"first batch, {method} -> fork", ("confirmed",), written, suggested, sized="")


def memory(name: str, method: str, written: Mapping[str, Any], suggested: Mapping[str, Any]) -> Case:
    options = {"batch_size": 512, "shuffle": True, "num_workers": 2, "multiprocessing_context": method}

    def arm(dataset: Mapping[str, Any]) -> dict[str, Any]:
        return {"block": "memory", "dataset": dataset, "loader": options}

    warm_ups = int(method == "fork")
    arms = arm(written), arm(suggested)
    return Case(name, ("confirmed",), *arms, written, "memory", sized="", blocks=1, warm_ups=warm_ups)


WORK = {"kind": "shaped", "shape": (3, 64, 64), "size": 256, "cpu_s": 0.002}
STRINGS = 300_000

STRONG = (
    persistent("fork"),
    persistent("spawn"),
    persistent("forkserver"),
    Case(
        "TensorDataset, 2 workers -> none",
        ("confirmed",),
        {**loader(num_workers=2), "batches": 64},
        {**loader(num_workers=0), "batches": 64},
        {"kind": "tensors"},
    ),
    Case(
        "next(iter(loader)) per step -> one iterator",
        ("confirmed",),
        {**loader(num_workers=2), "block": "new-iterator"},
        {**loader(num_workers=2), "block": "one-iterator"},
        sized="batches",
    ),
    Case(
        "loader rebuilt in each epoch -> once",
        ("confirmed",),
        {**loader(num_workers=2, persistent_workers=False), "rebuild": True},
        loader(num_workers=2, persistent_workers=True),
        kind="additive",
    ),
    Case(
        "items one by one -> batches of indices",
        ("confirmed",),
        {"block": "epoch", "batches": 64, "threads": 1, "loader": {"batch_size": 256, "shuffle": True}},
        {"block": "epoch", "batches": 64, "threads": 1, "loader": {"batch_size": 256, "indexed": "batches"}},
        {"kind": "rows"},
    ),
    first_batch("spawn"),
    first_batch("forkserver"),
    memory(
        "memory: list of strings -> packed, fork",
        "fork",
        {"kind": "strings", "size": STRINGS},
        {"kind": "packed-strings", "size": STRINGS},
    ),
    memory(
        "memory: 128 MB as bytes -> as a tensor, spawn",
        "spawn",
        {"kind": "block", "megabytes": 128},
        {"kind": "block", "megabytes": 128, "shared": True},
    ),
)

NOTHING = (
    Case(
        "prefetch_factor 2 -> 4, even batches",
        ("refuted-no-effect", "inconclusive"),
        {"block": "steady", "loader": {"batch_size": 8, "num_workers": 2, "prefetch_factor": 2}},
        {"block": "steady", "loader": {"batch_size": 8, "num_workers": 2, "prefetch_factor": 4}},
        WORK,
        sized="batches",
    ),
    Case(
        "pin_memory without an accelerator",
        ("refuted-no-effect", "inconclusive"),
        loader(num_workers=0, pin_memory=True),
        loader(num_workers=0, pin_memory=False),
        WORK,
    ),
)

BUSY = Case(
    "0 -> 2 workers while the machine is busy (threads sold as workers)",
    ("inconclusive",),
    {"block": "steady", "loader": {"batch_size": 16, "num_workers": 0}},
    {"block": "steady", "loader": {"batch_size": 16, "num_workers": 2}},
    {"kind": "shaped", "shape": (3, 224, 224), "size": 256, "cpu_s": 0.001},
    sized="batches",
    control={"block": "steady", "loader": {"batch_size": 16, "num_workers": 0}, "threads": 1},
    parallel=True,
)

# A against itself, of each type of block.
AGAINST_ITSELF: dict[str, tuple[Mapping[str, Any], Mapping[str, Any], int]] = {
    "epoch, no workers": (loader(num_workers=0), WORK, BLOCKS),
    "epoch, 2 workers": (loader(num_workers=2), WORK, BLOCKS),
    "epoch, rebuilt": ({**loader(num_workers=2), "rebuild": True}, WORK, BLOCKS),
    "steady, no workers": ({"block": "steady", "loader": {"batch_size": 8, "num_workers": 0}}, WORK, BLOCKS),
    "steady, 2 workers": ({"block": "steady", "loader": {"batch_size": 8, "num_workers": 2}}, WORK, BLOCKS),
    "startup, fork": ({"block": "startup", "loader": {"batch_size": 8, "num_workers": 2}}, WORK, BLOCKS),
    "new iterators": ({**loader(num_workers=2), "block": "new-iterator"}, WORK, BLOCKS),
    "memory": (
        {
            "block": "memory",
            "dataset": {"kind": "strings", "size": 100_000},
            "loader": {"batch_size": 512, "shuffle": True, "num_workers": 2},
        },
        WORK,
        1,
    ),
}


@dataclass(frozen=True)
class Run:
    """A line of the table."""

    part: str
    name: str
    verdict: str
    expected: tuple[str, ...]
    ratio: float | None
    ci: tuple[float, float] | None
    a: float | None
    b: float | None
    rounds: int
    seconds: float
    aa_seconds: float
    noise: tuple[float, float] | None
    contains_one: bool | None = None
    control: float | None = None
    free: float | None = None
    failures: str = ""

    @property
    def holds(self) -> bool:
        return self.verdict in self.expected and not self.failures


class Bench:
    def __init__(self, python: str, seed: int) -> None:
        self.python = python
        self.dice = random.Random(seed)
        self.noises: dict[str, tuple[Noise, float]] = {}

    def group(self, arms: Mapping[str, Mapping[str, Any]], case: Case) -> Group:
        hosts = workload.stand_in(self.python, case.dataset, self.dice, 0).hosts
        pairs = {"it": Comparison("A", "B", case.kind)}
        return Group(arms, pairs, hosts, sized=case.sized, blocks=case.blocks, warm_ups=case.warm_ups)

    def noise(self, case: Case) -> tuple[Noise | None, float]:
        """The A/A of what is written, once for each type of block, and the seconds that it took."""
        key = f"{case.written['block']} {case.dataset.get('kind')} {case.written['loader'].get('num_workers')}"
        if key not in self.noises:
            start = time.perf_counter()
            group = self.group({"A": case.written, AGAIN: case.written}, case)
            pairs = {"it": Comparison("A", AGAIN, case.kind)}
            looks = LOOKS[:1]
            outcome = Runner(self.dice.randrange(1 << 30), looks).run(replace(group, comparisons=pairs), 1e6)
            found = outcome.noise("A")
            if found is None:
                return None, time.perf_counter() - start
            self.noises[key] = found, time.perf_counter() - start
        return self.noises[key]

    def case(self, part: str, case: Case) -> Run:
        noise, aa_s = self.noise(case)
        arms = {"A": case.written, "B": case.suggested}
        if case.control is not None:
            arms["one thread"] = case.control
        free = [machine.free_capacity(2)] if case.parallel else []
        start = time.perf_counter()
        outcome = Runner(self.dice.randrange(1 << 30)).run(self.group(arms, case), LIMIT_S, noise=noise)
        seconds = time.perf_counter() - start
        free += [machine.free_capacity(2)] if case.parallel else []
        found = outcome.effect_of(Comparison("A", "B", case.kind))
        control = outcome.effect_of(Comparison("A", "one thread", "ratio")) if case.control is not None else None
        judged = _judged(case, outcome, found, noise, min(free, default=None), control)
        return _run(part, case.name, judged, case.expected, outcome, found, seconds, aa_s, noise, free, control)

    def against_itself(self, name: str, number: int) -> Run:
        config, dataset, blocks = AGAINST_ITSELF[name]
        kind: Kind = "memory" if name == "memory" else "ratio"
        case = Case(name, (), config, config, dataset, kind, sized="", blocks=blocks)
        start = time.perf_counter()
        outcome = Runner(self.dice.randrange(1 << 30), LOOKS[:1]).run(self.group({"A": config, "B": config}, case), 1e6)
        found = outcome.effect_of(Comparison("A", "B", kind), LEVEL)
        judged = verdict.judge(found, kind, None) if found is not None else "error"
        expected = ("refuted-no-effect", "inconclusive")
        seconds = time.perf_counter() - start
        return _run("aa", f"{name} #{number}", judged, expected, outcome, found, seconds, 0.0, None, [], None)


def _judged(
    case: Case,
    outcome: Outcome,
    found: Effect | None,
    noise: Noise | None,
    free: float | None,
    control: Effect | None,
) -> str:
    if found is None or outcome.failures:
        return "error"
    judged = verdict.judge(found, case.kind, noise)
    if noise is not None:
        judged = verdict.capped(judged, [verdict.guard_of(noise)])
    if free is not None and free < machine.FREE_ENOUGH * 2:
        return "inconclusive"
    if control is not None and judged == "confirmed" and verdict.explained_by(control, found) > 0.5:
        return "inconclusive"
    return judged


def _run(
    part: str,
    name: str,
    judged: str,
    expected: tuple[str, ...],
    outcome: Outcome,
    found: Effect | None,
    seconds: float,
    aa_s: float,
    noise: Noise | None,
    free: Sequence[float],
    control: Effect | None,
) -> Run:
    return Run(
        part,
        name,
        judged,
        expected,
        found.ratio if found else None,
        found.ci if found else None,
        found.a if found else None,
        found.b if found else None,
        len(outcome.rounds),
        seconds,
        aa_s,
        noise.ci if noise else None,
        found.ci[0] <= 1 <= found.ci[1] if found else None,
        control.ratio if control else None,
        min(free, default=None),
        "; ".join(str(error) for error in outcome.failures.values()),
    )


def busy(bench: Bench) -> Run:
    """The same comparison with a neighbour on one of the cores, which spins as long as it lasts."""
    neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        return bench.case("busy", BUSY)
    finally:
        neighbour.kill()
        neighbour.wait()


# The conditions


def allowed_without_one(number: int, level: float = LEVEL, chance: float = 0.01) -> int:
    """As many of ``number`` intervals may miss 1 as chance explains: the least bound with 99 % below it."""
    miss, total = 1 - level, 0.0
    for count in range(number + 1):
        total += math.comb(number, count) * miss**count * (1 - miss) ** (number - count)
        if total >= 1 - chance:
            return count
    return number


def conditions(runs: Sequence[Run]) -> Iterator[tuple[str, bool]]:
    aa = [run for run in runs if run.part == "aa"]
    if aa:
        wrong = [run.name for run in aa if run.verdict in DECIDED]
        missing = sum(run.contains_one is False for run in aa)
        bound = allowed_without_one(len(aa))
        yield f"{len(aa)} A/A: {len(wrong)} confirmed or harmful {wrong or ''}".rstrip(), not wrong
        yield f"{len(aa)} A/A: {missing} intervals without 1, at most {bound} by chance", missing <= bound
    for run in runs:
        if run.part in ("strong", "nothing", "busy"):
            yield f"{run.name}: {run.verdict}", run.holds
    for run in runs:
        if run.part == "strong":
            yield f"{run.name}: {run.seconds:.0f} s beside the A/A", run.seconds <= LIMIT_S


def table(runs: Sequence[Run]) -> str:
    lines = [
        "| what | A | B | B/A | verdict | rounds | seconds | A/A of the block |",
        "| --- | ---: | ---: | --- | --- | ---: | ---: | --- |",
    ]
    for run in runs:
        if run.part == "aa":
            continue
        ratio = f"{run.ratio:.3f} [{run.ci[0]:.3f}, {run.ci[1]:.3f}]" if run.ratio is not None and run.ci else "-"
        noise = f"[{run.noise[0]:.3f}, {run.noise[1]:.3f}], {run.aa_seconds:.0f} s" if run.noise else "-"
        sides = [_figure(value, run.name.startswith("memory")) for value in (run.a, run.b)]
        lines.append(f"| {run.name} | {' | '.join(sides)} | {ratio} | {run.verdict} | {run.rounds} "
                     f"| {run.seconds:.0f} | {noise} |")  # fmt: skip
    return "\n".join(lines)


def table_of_aa(runs: Sequence[Run]) -> str:
    lines = [
        "| block | runs | ratios | widest half width | without 1 | s each |",
        "| --- | ---: | --- | ---: | ---: | ---: |",
    ]
    for name in AGAINST_ITSELF:
        mine = [run for run in runs if run.part == "aa" and run.name.startswith(f"{name} #") and run.ratio and run.ci]
        if mine:
            ratios = sorted(run.ratio for run in mine if run.ratio)
            widest = max(math.sqrt(run.ci[1] / run.ci[0]) - 1 for run in mine if run.ci)
            missing = sum(run.contains_one is False for run in mine)
            each = sum(run.seconds for run in mine) / len(mine)
            lines.append(f"| {name} | {len(mine)} | {ratios[0]:.3f} to {ratios[-1]:.3f} | {widest:.1%} | {missing} "
                         f"| {each:.0f} |")  # fmt: skip
    return "\n".join(lines)


def _figure(value: float | None, memory: bool) -> str:
    if value is None:
        return "-"
    return f"{value / 1e6:.0f} MB" if memory else f"{value * 1e3:.3g} ms"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch")
    parser.add_argument("--aa", type=int, default=50, help="runs of A against itself")
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--only", default="aa,strong,nothing,busy")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    bench = Bench(options.python, options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    runs: list[Run] = []
    parts = options.only.split(",")

    def do(work: Callable[[], Run]) -> None:
        run = work()
        runs.append(run)
        with open(options.out / "measuring.jsonl", "a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(run)) + "\n")
        print(
            f"{run.seconds:6.1f} s  {run.verdict:18} {run.name}  {run.ratio and round(run.ratio, 3)} {run.failures}",
            flush=True,
        )

    for part, cases in (("strong", STRONG), ("nothing", NOTHING)):
        for case in cases if part in parts else ():
            do(lambda part=part, case=case: bench.case(part, case))  # type: ignore[misc]
    if "busy" in parts:
        do(lambda: busy(bench))
    names = list(AGAINST_ITSELF)
    for number in range(options.aa if "aa" in parts else 0):
        do(lambda number=number: bench.against_itself(names[number % len(names)], number))  # type: ignore[misc]
    checked = list(conditions(runs))
    text = "\n\n".join(
        [table(runs), table_of_aa(runs), "\n".join(f"- {'yes' if ok else 'NO'}: {it}" for it, ok in checked)]
    )
    (options.out / "measuring.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0 if all(ok for _, ok in checked) else 1


if __name__ == "__main__":
    sys.exit(main())
