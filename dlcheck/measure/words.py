"""The line that says what a record found: of `full` reports, of the measuring command, and of the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from dlcheck.measure import identity
from dlcheck.measure.record import Effect, Metric, Record

VERDICTS = {
    "confirmed": "confirmed",
    "refuted-no-effect": "refuted (no effect)",
    "refuted-harmful": "refuted (harmful)",
    "inconclusive": "inconclusive",
    "not-measurable-here": "not measurable",
    "suggestion-breaks": "the suggestion breaks",
    "error": "measuring failed",
}
WORKLOADS = {
    "in-vivo": "in the program itself",
    "extract": "the program's own loader",
    "factory": "workload of a factory",
    "synthetic": "synthetic workload",
    "analytic": "calculated",
    "none": "",
}

_SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "s": ((3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    "bytes": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")),
}
# A time is said in minutes from two of them on, and in hours likewise.
_FIRST_OF = {"min": 120, "h": 7200}


def line(record: Record, *, here: bool = True, outdated: bool = False) -> str:
    """``here on 29 Nov 2026: confirmed, saves 76 ms per epoch [64, 89] (epoch 351 -> 275 ms), synthetic workload``"""
    if record.verdict == "not-measurable-here" and here:
        return f"not measurable here: {record.reason}"
    where = "here" if here else f"on another machine ({identity.described(identity.of(record.machine)) or 'unknown'})"
    return f"{where} on {day(record.date)}: {outcome(record)}{'; ' + versions(record) if outdated else ''}"


def versions(record: Record) -> str:
    """Of an outdated record: what it was measured with."""
    torch, python = (str(record.software.get(name) or "?") for name in ("torch", "python"))
    return f"outdated: measured with torch {torch} on Python {python}"


def outcome(record: Record) -> str:
    """The verdict with the figures that it rests on, and how near the workload was to the user's own."""
    verdict = VERDICTS[record.verdict]
    if record.effect is None or record.metric is None:
        return f"{verdict}: {record.reason}" if record.reason else verdict
    said = ", ".join(filter(None, (f"{verdict}, {change(record)}", WORKLOADS[record.evidence])))
    if record.verdict in ("suggestion-breaks", "error"):
        return f"{said}: {record.reason}"
    # Where not the figures decided but a guard or a control, the reason begins with it.
    cause, figures, _ = record.reason.partition("; ")
    return f"{said}: {cause}" if record.verdict == "inconclusive" and figures else said


def day(date: str) -> str:
    """``29 Nov 2026``; what is no date stays as it is."""
    try:
        found = datetime.fromisoformat(date.replace("Z", "+00:00"))
    except ValueError:
        return date
    month = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")[found.month - 1]
    return f"{found.day} {month} {found.year}"


def scale(largest: float, unit: str) -> tuple[float, str]:
    """What to divide values of a unit by, and the name of what they are then: (0.001, "ms") for 0.35 s/epoch."""
    base = unit.partition("/")[0]
    scales = _SCALES.get(base, ((1, unit),))
    if not largest:
        return 1, next(name for size, name in scales if size == 1)
    # Rounded first: 0.99996 s is 1 s and not 1000 ms.
    rounded = float(f"{largest:.3g}")
    return next((row for row in scales if rounded >= _FIRST_OF.get(row[1], row[0])), scales[-1])


def quantities(values: Sequence[float], unit: str) -> tuple[list[str], str]:
    """Values as text on one scale, and the name of that scale; `s/epoch` becomes `ms`."""
    finite = [abs(value) for value in values if math.isfinite(value) and value]
    # The scale follows the largest value, the digits the smallest that still counts beside it.
    largest = max(finite, default=0.0)
    smallest = min((value for value in finite if value >= largest / 100), default=largest)
    size, name = scale(largest, unit)
    return [_digits(value / size, max(smallest, abs(value) / 3) / size) for value in values], name


def _sides(effect: Effect, metric: Metric) -> tuple[list[str], str]:
    """What both arms take; what is next to nothing is no nothing."""
    values = [effect.a, effect.b]
    texts, name = quantities(values, metric.unit)
    size, _ = scale(max(map(abs, filter(math.isfinite, values)), default=0.0), metric.unit)
    shown = zip(values, texts, strict=True)
    return [_digits(value / size, value / size) if value and text == "0" else text for value, text in shown], name


def quantity(value: float, unit: str) -> str:
    """``76 ms``"""
    (text,), name = quantities([value], unit)
    return f"{text} {name}".strip()


def percent(value: float) -> str:
    """A share as a percentage, without its sign."""
    return _digits(100 * value, 100 if abs(value) >= 0.03 else 3)


def ratio(value: float) -> str:
    """``0.84``; what is next to nothing is no nothing."""
    return "<0.01" if 0 < value < 0.005 else _digits(value, max(1.0, abs(value) / 3))


def _times(effect: Effect, metric: Metric) -> str:
    middle, low, high = map(ratio, (effect.ratio, *effect.ci))
    what = {"s": "long", "bytes": "much memory"}.get(metric.unit.partition("/")[0], "much")
    return f"{middle} times as {what} [{low}, {high}]"


def change(record: Record) -> str:
    """``saves 76 ms per epoch [64, 89] (epoch 351 -> 275 ms)``; nothing where nothing was compared."""
    effect, metric = record.effect, record.metric
    if effect is None or metric is None:
        return ""
    per = _per(metric)
    (a, b), name = _sides(effect, metric)
    # Of memory the name says what for: so many steps, or an epoch.
    of = f"{metric.name}:" if metric.kind == "memory" else per
    sides = f"{of} {a} -> {b} {name}".strip() + promise(record)
    if record.verdict not in ("confirmed", "refuted-harmful"):
        return f"{_times(effect, metric)} ({sides})"
    run, epochs = record.saves.get("per_run_s"), record.workload.get("epochs")
    if run is not None and epochs is not None and record.verdict == "confirmed":
        sides += f"; {quantity(run, 's')} in {epochs.value} epochs"
    return f"{_gain(effect, metric, per)} ({sides})"


def promise(record: Record) -> str:
    """``; the model says 12.1 -> 9.8 ms, off by +3 % and -1 %``: what a step should take by what its parts do."""
    predicted, error = ((record.model or {}).get(name, {}) for name in ("predicted", "error"))
    if record.metric is None or not {"A", "B"} <= predicted.keys() & error.keys():
        return ""
    (a, b), name = quantities([predicted["A"], predicted["B"]], record.metric.unit)
    return f"; the model says {a} -> {b} {name}, off by {off(error['A'])} and {off(error['B'])}"


def off(error: float) -> str:
    """``+3 %``"""
    return f"{round(100 * error):+d} %"


def _per(metric: Metric) -> str:
    base, _, per = metric.unit.partition("/")
    return per if base in _SCALES else ""


def _gain(effect: Effect, metric: Metric, per: str) -> str:
    """What the suggestion saves or costs, in the terms that the verdict was found in."""
    of = f" per {per}" if per else ""
    better = effect.diff > 0 if metric.kind != "ratio" else effect.ratio < 1
    verb = "saves" if better else "costs"
    if not metric.lower_is_better or (metric.kind == "ratio" and not 0.005 < effect.ratio < 2):
        return _times(effect, metric)
    if metric.kind == "ratio":
        ends = sorted((1 - end if better else end - 1) for end in effect.ci)
        return f"{verb} {percent(abs(1 - effect.ratio))} %{of} [{percent(ends[0])}, {percent(ends[1])}]"
    ends = sorted(end if better else -end for end in effect.diff_ci)
    (value, low, high), name = quantities([abs(effect.diff), *ends], metric.unit)
    return f"{verb} {value} {name}{of} [{low}, {high}]"


def _digits(value: float, like: float) -> str:
    """A number with as many decimals as one of the size of ``like`` needs for three digits or so."""
    if not math.isfinite(value):
        return "?" if math.isnan(value) else "∞" if value > 0 else "-∞"
    if abs(value) >= 1e5:
        return f"{value:.3g}"
    like = abs(like)
    decimals = 0 if like >= 30 or not like else 1 if like >= 3 else 2 if like >= 0.1 else 3
    text = f"{value:.{decimals}f}"
    return text.removeprefix("-") if not float(text) else text
