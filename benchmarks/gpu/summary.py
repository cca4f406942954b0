"""From the lines of all rounds to effects, verdicts, model errors, and what must hold for a run to count."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from cells import MIB, Cell, Pair

from dlcheck.measure import stepmodel
from dlcheck.measure.record import Arm, Block, Effect, Fact, Guard, Location, Metric, Noise, Record, Verdict
from dlcheck.measure.statistics import LEVEL, Round
from dlcheck.measure.verdict import capped, effect, guard_of, judge, noise_of, reason

ROUNDS = 4  # fewer decide nothing
Status = Literal["pass", "fail", "not-measurable-here", "not-measured"]
OF_LINK, LARGE = 0.8, 16 * MIB
MODEL_ERROR, OF_CELLS = 0.15, 0.8
FLOOR = 0.02
SYNC_GROUPS = ("C4", "C5", "C8", "C9", "C11")


@dataclass
class Seen:
    """What the rounds said so far."""

    cells: Sequence[Cell]
    rounds: dict[int, dict[str, Any]] = field(default_factory=dict)  # what each process said of itself
    facts: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    controls: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)

    def add(self, number: int, line: Mapping[str, Any]) -> None:
        """A line of a round."""
        told = {"round": number, **line}
        if "ready" in line:
            self.rounds[number] = told
        elif "error" in line:
            self.errors.append(told)
        elif "skipped" in line:
            self.skipped.append(told)
        elif "control" in line:
            self.controls.append({"round": number, "cell": line["cell"], **line["control"]})
        elif "block" in line:
            place = {key: line[key] for key in ("cell", "arm", "position")}
            self.blocks.append({"round": number, **place, **line["block"]})
        elif "cell" in line:
            self.facts.setdefault(line["cell"], {})[number] = line["facts"]
        else:
            self.states.append(told)

    def of(self, cell: Cell, arm: str) -> dict[int, list[dict[str, Any]]]:
        """The blocks of an arm by round."""
        found: dict[int, list[dict[str, Any]]] = {}
        for block in self.blocks:
            if block["cell"] == cell.name and block["arm"] == arm:
                found.setdefault(block["round"], []).append(block)
        return found

    def figure(self, cell: Cell, arm: str, key: str = "t") -> float | None:
        """The median over rounds of the median in a round."""
        values = [median(block[key] for block in blocks if key in block) for blocks in self.of(cell, arm).values()]
        return median(values) if values else None

    def compared(self, cell: Cell, pair: Pair) -> list[Round]:
        a, b = self.of(cell, pair.a), self.of(cell, pair.b)
        return [Round([one["t"] for one in a[n]], [one["t"] for one in b[n]]) for n in sorted(a.keys() & b.keys())]

    def effect(self, cell: Cell, pair: Pair) -> Effect | None:
        rounds = self.compared(cell, pair)
        return effect(rounds, 1, LEVEL) if len(rounds) > 1 else None

    def missing(self, cell: Cell) -> list[str]:
        """What the device lacks for this cell to decide anything."""
        return next((list(facts["missing"]) for facts in self.facts.get(cell.name, {}).values()), [])

    def device(self) -> dict[str, Any]:
        """What the first round said of the device; nothing before that."""
        return next((dict(one["facts"]) for one in self.rounds.values()), {})

    def decides(self) -> bool:
        """Whether the device is one that all of this is about."""
        return bool(self.rounds) and all(one["facts"]["async_copies"] for one in self.rounds.values())

    def terms(self, cell: Cell) -> dict[str, float]:
        """The median over rounds of each term."""
        told = [facts["terms"] for facts in self.facts.get(cell.name, {}).values() if "terms" in facts]
        return {name: median(terms[name] for terms in told) for name in told[0]} if told else {}

    def limit_gbs(self) -> float | None:
        links = [one["facts"].get("link") for one in self.rounds.values()]
        return next((float(link["limit_gbs"]) for link in links if link), None)


def noises(seen: Seen) -> dict[str, Noise]:
    """The A/A of each group: the widest of its cells, so that no cell's verdict is too sure."""
    found: dict[str, Noise] = {}
    for cell in seen.cells:
        aa = seen.effect(cell, cell.same) if cell.same else None
        if aa is not None:
            noise = noise_of(aa)
            if cell.group not in found or noise.floor > found[cell.group].floor:
                found[cell.group] = noise
    return found


def predicted(seen: Seen, cell: Cell, arm: str) -> float | None:
    """What the step model says of an arm; None where it says nothing."""
    terms = seen.terms(cell)
    return stepmodel.of_arm(cell.experiment, terms, cell.arms[arm]) if terms else None


def least(seen: Seen, cell: Cell) -> float | None:
    """Seconds that no arm of a cell can stay below."""
    terms = seen.terms(cell)
    if cell.group == "C2" and terms:
        return stepmodel.least(stepmodel.Terms.of(terms))
    limit, size = seen.limit_gbs(), cell.config.get("bytes")
    return size / limit / 1e9 if cell.group == "C1" and limit and size else None


def guards(seen: Seen, cell: Cell, pair: Pair, noise: Noise | None) -> list[Guard]:
    blocks = [block for arm in (pair.a, pair.b) for blocks in seen.of(cell, arm).values() for block in blocks]
    wrong = sum(not block["ok"] for block in blocks)
    found = [Guard("checksum", "fail" if wrong else "pass", f"{len(blocks) - wrong} of {len(blocks)} blocks")]
    limit = least(seen, cell)
    if limit is not None:
        below = [arm for arm in (pair.a, pair.b) if stepmodel.is_impossible(seen.figure(cell, arm) or limit, limit)]
        detail = f"{', '.join(below)} below {limit:.3g} s" if below else f"none below {limit:.3g} s"
        found.append(Guard("physical limit", "fail" if below else "pass", detail))
    if noise is not None:
        found.append(guard_of(noise))
    settled = all(facts["clocks_settled"] for facts in seen.facts.get(cell.name, {}).values())
    found.append(Guard("clocks settled", "pass" if settled else "warn", "" if settled else "not within the time"))
    return found + _of_states(seen, cell)


def _of_states(seen: Seen, cell: Cell) -> list[Guard]:
    """What the driver said before and after the group: clocks held down, others at work."""
    told = [state.get("before") or state.get("after") for state in seen.states]
    groups = [state.get("group") or state.get("done") for state in seen.states]
    mine = [state for state, group in zip(told, groups, strict=True) if state and group == cell.group]
    if not mine:
        return [Guard("clocks held down", "skipped", "the driver does not tell"), Guard("other processes", "skipped")]
    slowed = sorted({name for state in mine for name in state.get("slowed") or ()})
    others = sorted({pid for state in mine for pid in state.get("others") or ()})
    return [
        Guard("clocks held down", "warn" if slowed else "pass", ", ".join(slowed)),
        Guard("other processes", "warn" if others else "pass", ", ".join(map(str, others))),
    ]


def decided(seen: Seen, cell: Cell, pair: Pair, noise: Noise | None) -> tuple[Verdict, str, list[Guard]]:
    """Verdict, the sentence that names what decided, and the guards."""
    found = seen.effect(cell, pair)
    lacking = seen.missing(cell)
    checked = guards(seen, cell, pair, noise)
    if lacking:
        return "not-measurable-here", f"needs {' and '.join(lacking)}", checked
    if found is None or found.n_units < ROUNDS:
        rounds = 0 if found is None else found.n_units
        return "inconclusive", f"{rounds} of {ROUNDS} rounds within the time", checked
    plain = judge(found, "ratio", noise)
    verdict = capped(plain, checked)
    told = reason(verdict, found, "ratio", noise, cell.name)
    if verdict != plain:
        told = f"{told}; guard failed: {', '.join(guard.name for guard in checked if guard.status == 'fail')}"
    return verdict, told, checked


# -- What must hold ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Condition:
    name: str
    status: Status
    detail: str


def acceptance(seen: Seen, rounds: int) -> list[Condition]:
    """What must hold for the run to count, each with its figures."""
    return [
        _checksums(seen),
        _control(seen),
        _bandwidth(seen),
        _model(seen),
        *_floors(seen),
        _limits(seen),
        _complete(seen, rounds),
    ]


def _status(holds: bool) -> Status:
    return "pass" if holds else "fail"


def _checksums(seen: Seen) -> Condition:
    wrong = [f"{block['cell']}, {block['arm']}" for block in seen.blocks if not block["ok"]]
    detail = f"{len(seen.blocks) - len(wrong)} of {len(seen.blocks)} blocks"
    if wrong:
        detail += f"; wrong: {'; '.join(sorted(set(wrong))[:5])}"
    return Condition("all checksums agree", _status(not wrong and bool(seen.blocks)), detail)


def _control(seen: Seen) -> Condition:
    name = "the negative control failed at least once"
    if not seen.decides():
        return Condition(name, "not-measurable-here", "nothing is asynchronous on this device: no copy can be late")
    failed = [one for one in seen.controls if not one["ok"]]
    return Condition(name, _status(bool(failed)), f"{len(failed)} of {len(seen.controls)} blocks")


def _bandwidth(seen: Seen) -> Condition:
    name = f"pinned copies reach {OF_LINK:.0%} of the link"
    if not seen.decides():
        return Condition(name, "not-measurable-here", "no link")
    large = [cell for cell in seen.cells if cell.group == "C1" and cell.config["bytes"] >= LARGE]
    rates = [seen.figure(cell, arm, "gbs") or 0.0 for cell in large for arm in ("pinned", "pinned_nb")]
    limit = seen.limit_gbs()
    if not rates or limit is None:
        return Condition(name, "not-measured", f"{max(rates, default=0.0):.1f} GB/s; link unknown")
    detail = f"{max(rates):.1f} of {limit:.1f} GB/s = {max(rates) / limit:.0%}"
    return Condition(name, _status(max(rates) >= OF_LINK * limit), detail)


def model_errors(seen: Seen) -> dict[tuple[str, str], float]:
    """How far the step model is off, by cell and arm of C2; the median of the rounds, each with its own terms."""
    found = {}
    for cell in seen.cells:
        if cell.group != "C2":
            continue
        for arm, config in cell.arms.items():
            errors = []
            for number, blocks in seen.of(cell, arm).items():
                terms = stepmodel.Terms.of(seen.facts[cell.name][number]["terms"])
                measured = median(block["t"] for block in blocks)
                errors.append(stepmodel.error(measured, stepmodel.predicted(terms, stepmodel.Transfer.of(config))))
            if errors:
                found[cell.name, arm] = median(errors)
    return found


def _model(seen: Seen) -> Condition:
    name = f"the model is off by {MODEL_ERROR:.0%} at most in {OF_CELLS:.0%} of C2"
    if not seen.decides():
        return Condition(name, "not-measurable-here", "the model is about a device that works beside the host")
    errors = model_errors(seen)
    if not errors:
        return Condition(name, "not-measured", "no cell of C2")
    near = [error for error in errors.values() if abs(error) <= MODEL_ERROR]
    (cell, arm), worst = max(errors.items(), key=lambda item: abs(item[1]))
    detail = f"{len(near)} of {len(errors)} = {len(near) / len(errors):.0%}; worst {worst:+.0%} ({cell}, {arm})"
    return Condition(name, _status(len(near) >= OF_CELLS * len(errors)), detail)


def _floors(seen: Seen) -> Iterator[Condition]:
    found = noises(seen)
    for group in dict.fromkeys(cell.group for cell in seen.cells if cell.same):
        name = f"A/A of {group}: half width {FLOOR:.0%} at most"
        noise = found.get(group)
        if noise is None:
            yield Condition(name, "not-measured", "fewer than two rounds")
            continue
        detail = f"±{noise.floor:.1%}; {noise.ratio:.3f} [{noise.ci[0]:.3f}, {noise.ci[1]:.3f}]"
        holds = noise.floor <= FLOOR
        yield Condition(name, _status(holds) if seen.decides() else "not-measurable-here", detail)


def _limits(seen: Seen) -> Condition:
    name = "no figure is better than the hardware allows"
    if not seen.decides():
        return Condition(name, "not-measurable-here", "the limits are those of another device")
    better = []
    for cell in seen.cells:
        limit = least(seen, cell)
        if limit is not None:
            figures = {arm: seen.figure(cell, arm) for arm in cell.arms}
            better += [f"{cell.name}, {arm}" for arm, t in figures.items() if t and stepmodel.is_impossible(t, limit)]
    return Condition(name, _status(not better), "; ".join(better[:5]) or "none")


def _complete(seen: Seen, rounds: int) -> Condition:
    whole = [cell for cell in seen.cells if all(len(seen.of(cell, arm)) >= rounds for arm in cell.arms)]
    detail = f"{len(whole)} of {len(seen.cells)} cells in {rounds} rounds; {len(seen.skipped)} skipped, "
    detail += f"{len(seen.errors)} errors" + "".join(f"; {one['cell']}: {one['error']}" for one in seen.errors[:3])
    return Condition("all cells ran in all rounds", _status(len(whole) == len(seen.cells)), detail)


# -- Records and tables ------------------------------------------------------------------------------------------------


def records(seen: Seen, wall_s: float, command: str) -> list[Record]:
    """One for each pair that is a rule's written and suggested code."""
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = noises(seen)
    first = seen.device()
    made = []
    for cell in seen.cells:
        for pair in cell.pairs:
            if not pair.code or cell.name not in seen.facts:
                continue
            verdict, told, checked = decided(seen, cell, pair, found.get(cell.group))
            model = {arm: predicted(seen, cell, arm) for arm in (pair.a, pair.b)}
            made.append(
                Record(
                    id=hashlib.sha256(f"{cell.name} {pair.a} {pair.b} {date}".encode()).hexdigest()[:16],
                    code=pair.code,
                    rule=pair.rule,
                    fingerprint=hashlib.sha256(f"{cell.name} {pair.a} {pair.b}".encode()).hexdigest()[:16],
                    location=Location("benchmarks/gpu/cells.py", 1, 1),
                    verdict=verdict,
                    reason=told,
                    evidence="synthetic",
                    experiment="sync" if cell.group in SYNC_GROUPS else "transfer",
                    date=date,
                    metric=Metric("step", "s/step", "ratio"),
                    arms={"A": Arm(pair.a, cell.arms[pair.a]), "B": Arm(pair.b, cell.arms[pair.b])},
                    workload={key: Fact(value, "default") for key, value in cell.config.items()},
                    effect=seen.effect(cell, pair),
                    noise=found.get(cell.group),
                    model={"predicted": model, "terms": seen.terms(cell)} if all(model.values()) else None,
                    guards=checked,
                    blocks=_blocks(seen, cell, pair),
                    machine={key: value for key, value in first.items() if key != "torch"},
                    software={"torch": first.get("torch"), "cuda": first.get("cuda")},
                    cost={"wall_s": wall_s},
                    rerun=command,
                )
            )
    return made


def _blocks(seen: Seen, cell: Cell, pair: Pair) -> list[Block]:
    return [
        Block(
            round=block["round"],
            arm=name,
            position=block["position"],
            t=block["t"],
            wait=block.get("wait"),
            first=block.get("first"),
            copy=block.get("copy"),
            compute=block.get("compute"),
        )
        for name, arm in (("A", pair.a), ("B", pair.b))
        for blocks in seen.of(cell, arm).values()
        for block in blocks
    ]


def seconds(value: float | None) -> str:
    """A time that people read: 1.24 ms."""
    if value is None:
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def markdown(seen: Seen, rounds: int, wall_s: float) -> str:
    """The whole run as one page."""
    first = seen.device()
    parts = ["# Transfers and waits, measured\n"]
    if not seen.decides():
        parts.append("**A rehearsal without a GPU: it shows that the path works, and nothing about any GPU.**\n")
    link = first.get("link") or {}
    parts.append(
        f"{first.get('name', 'unknown')} ({first.get('device')}), torch {first.get('torch')}, "
        f"link {link.get('limit_gbs', 'unknown')} GB/s; {len(seen.rounds)} of {rounds} rounds, {wall_s:.0f} s.\n"
    )
    conditions = acceptance(seen, rounds)
    parts.append("## Acceptance\n")
    parts.append(table(("condition", "", "figures"), [(one.name, one.status, one.detail) for one in conditions]))
    parts.append("## Comparisons\n")
    parts.append(_comparisons(seen))
    parts.append("## Arms\n")
    parts.append(_arms(seen))
    return "\n".join(parts)


def _comparisons(seen: Seen) -> str:
    rows, found = [], noises(seen)
    for cell in seen.cells:
        for pair in cell.pairs:
            both = seen.effect(cell, pair)
            verdict, _, _ = decided(seen, cell, pair, found.get(cell.group))
            model = [predicted(seen, cell, arm) for arm in (pair.a, pair.b)]
            rows.append(
                (
                    cell.name,
                    f"{pair.a} → {pair.b}",
                    seconds(seen.figure(cell, pair.a)),
                    seconds(seen.figure(cell, pair.b)),
                    f"{both.ratio:.3f} [{both.ci[0]:.3f}, {both.ci[1]:.3f}]" if both else "-",
                    f"{model[1] / model[0]:.3f}" if model[0] and model[1] else "-",
                    pair.code or "-",
                    verdict if cell.name in seen.facts else "not measured",
                )
            )
    return table(("cell", "A → B", "A", "B", "B/A", "model B/A", "rule", "verdict"), rows)


def _arms(seen: Seen) -> str:
    rows = []
    for cell in seen.cells:
        for arm in cell.arms:
            t, model = seen.figure(cell, arm), predicted(seen, cell, arm)
            rate = seen.figure(cell, arm, "gbs") if cell.group == "C1" else None
            rows.append(
                (
                    cell.name,
                    arm,
                    seconds(t),
                    seconds(model),
                    f"{stepmodel.error(t, model):+.0%}" if t and model else "-",
                    seconds(_optional(seen, cell, arm, "blocked")),
                    seconds(_optional(seen, cell, arm, "copy")),
                    seconds(_optional(seen, cell, arm, "compute")),
                    f"{rate:.1f} GB/s" if rate else "-",
                )
            )
    header = ("cell", "arm", "measured", "model", "off by", "host held", "copy", "compute", "rate")
    return table(header, rows)


def _optional(seen: Seen, cell: Cell, arm: str, key: str) -> float | None:
    has = any(key in block for blocks in seen.of(cell, arm).values() for block in blocks)
    return seen.figure(cell, arm, key) if has else None
