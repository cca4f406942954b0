"""A search as text: the table, the choice, and what speaks for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlcheck.advise.tuning.bounds import PASSED
from dlcheck.advise.tuning.result import Proof, Result, Row, Start
from dlcheck.advise.tuning.setting import Setting
from dlcheck.harmless import printable
from dlcheck.measure import words
from dlcheck.measure.record import Effect, Metric

HEADS = ("", "setting", "ms/step", "95 %", "samples/s", "waiting", "first batch", "memory", "of workers", "/dev/shm")
CHOSEN, NOW = "*", "="
REASONS = {
    "budget": "the time (--budget) was over before the search was",
    "interrupted": "interrupted: what was found until then",
    "stopped": "it could not be brought to its end",
}


def render(result: Result) -> str:
    """All that is worth saying, without the line end."""
    return "\n".join(printable(line) if line else "" for line in _lines(result))


def _lines(result: Result) -> Iterator[str]:
    yield from _about(result)
    yield from table(result)
    yield from _starts(result)
    yield ""
    yield from conclusion(result)
    for note in result.notes:
        yield f"note: {note}"


def _about(result: Result) -> Iterator[str]:
    of = result.workload
    known = [
        words.WORKLOADS[result.evidence],
        f"batches of {of.get('batch_size')}" if of.get("batch_size") else "",
        words.quantity(of["batch_bytes"], "bytes") + " each" if of.get("batch_bytes") else "",
        f"{of['batches']} in an epoch" if of.get("batches") else "",
        step(result),
        f"{result.ranks} ranks at once" if result.ranks > 1 else "",
    ]
    yield ", ".join(filter(None, known))
    if result.status in REASONS:
        yield f"incomplete: {REASONS[result.status]}"
    yield ""


def step(result: Result) -> str:
    """What happens between two batches."""
    kind, seconds = result.step.get("kind", "none"), result.step.get("s", 0.0)
    if kind == "real":
        return "the step that the factory gives"
    if kind == "idle-wait":
        return f"a step that waits for {words.quantity(seconds, 's')}"
    if kind == "cpu-spin":
        return f"a step that works for {words.quantity(seconds, 's')}"
    return "no step: as fast as it loads"


def table(result: Result) -> Iterator[str]:
    """A line for each setting, those that failed with their reason."""
    rows = [(mark(result, row), row, cells(result, row)) for row in result.rows]
    if not rows:
        return
    texts = [list(HEADS), *([sign, result.name(row), *found] for sign, row, found in rows)]
    widths = [max(len(line[at]) for line in texts if len(line) > at) for at in range(len(HEADS))]
    # What failed has a sentence in place of figures: it is no reason to make columns wide.
    widths[2:] = [max(len(line[at]) for line in texts if len(line) == len(HEADS)) for at in range(2, len(HEADS))]
    for line in texts:
        yield _line(line, widths)
    yield f"{CHOSEN} chosen, {NOW} what the loader has now"


def mark(result: Result, row: Row) -> str:
    """Whether a row is what is chosen, or what the loader has now."""
    chosen = CHOSEN if row is result.best else ""
    return chosen + (NOW if row is result.now else "")


def cells(result: Result, row: Row) -> list[str]:
    """What a table says of a setting, after its name."""
    if not row.ran:
        # What was stopped or left out says so by itself.
        return [f"failed: {row.failure}" if row.stage not in ("", PASSED) else row.failure]
    assert row.step_s is not None
    ci = result.interval_of(row)
    batch = result.batch
    held = row.memory
    return [
        ms(row.step_s),
        f"[{ms(ci[0])}, {ms(ci[1])}]" if ci else "",
        _rate(batch / row.step_s) if batch else "",
        f"{row.waiting:.0%}" if row.waiting is not None else "",
        words.quantity(sorted(row.firsts)[len(row.firsts) // 2], "s"),
        *(size(held.get(name)) for name in ("pss", "workers", "shm")),
    ]


def ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g}" if seconds < 10 else f"{1000 * seconds:.0f}"


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def size(value: int | None) -> str:
    return "" if value is None else words.quantity(value, "bytes")


def _line(texts: Sequence[str], widths: Sequence[int]) -> str:
    left = 2  # columns of words; the others are numbers
    if len(texts) < len(widths):
        return f"{texts[0]:<{widths[0]}}  {texts[1]:<{widths[1]}}  {texts[2]}".rstrip()
    shown = [f"{text:<{widths[at]}}" if at < left else f"{text:>{widths[at]}}" for at, text in enumerate(texts)]
    return "  ".join(shown).rstrip()


def _starts(result: Result) -> Iterator[str]:
    if not result.starts:
        return
    yield ""
    yield "what the start and the end of an epoch take:"
    for one in result.starts:
        yield f"  {one.setting.words}: {start(one)}"


def start(one: Start) -> str:
    if one.seconds is None:
        return f"failed: {one.failure}"
    once = f", the first {words.quantity(one.once, 's')}" if one.once is not None else ""
    return f"{words.quantity(one.seconds, 's')}{once}"


def conclusion(result: Result) -> Iterator[str]:
    """The choice, why, and what its proof says."""
    if result.choice is None or result.chosen is None or result.present is None:
        yield "nothing is chosen: no setting could be run"
        return
    yield headline(result, result.chosen, result.present)
    yield f"  why: {result.choice.reason}"
    if result.proof is not None:
        yield f"  against what the loader has now: {proof(result.proof)}"
    elif result.chosen != result.present:
        yield "  it was not compared with what the loader has now"


def headline(result: Result, chosen: Setting, present: Setting) -> str:
    """What to do, in arguments."""
    if result.advice == "take":
        return f"take {chosen.as_code(present)}"
    if result.advice == "keep":
        return f"keep {present.as_code(present)}"
    return f"perhaps {chosen.as_code(present)}"


def proof(found: Proof) -> str:
    """``confirmed, step 42.1 -> 25 ms; step: B/A 0.599 [0.566, 0.633] over 4 rounds, ...``"""
    sides = change(found.effect, found.metric) if found.effect and found.metric else ""
    return f"{said(found)}{f', {sides}' if sides else ''}; {found.reason}"


def said(found: Proof) -> str:
    if found.effect is None and found.verdict == "refuted-no-effect":
        return "the same"
    return words.VERDICTS[found.verdict]


def change(effect: Effect, metric: Metric) -> str:
    (a, b), name = words.quantities([effect.a, effect.b], metric.unit)
    return f"{metric.name} {a} -> {b} {name}"
