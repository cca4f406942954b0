"""`--report page.html`: all records of a run on one page that needs no network.

The tables say everything and need no JavaScript; where it runs, Observable Plot draws the figures from
the data in the page.  Paths, messages and reasons come from code that anybody may have written: each
is escaped where it enters the page, and the page's own policy lets no other script run.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from dlcheck import __version__
from dlcheck.harmless import printable
from dlcheck.measure import identity, words
from dlcheck.measure.markup import ASSETS
from dlcheck.measure.markup import escaped as _text
from dlcheck.measure.markup import fact_list as _facts
from dlcheck.measure.markup import figure as _figure
from dlcheck.measure.markup import folded as _folded
from dlcheck.measure.markup import number_class as _number_class
from dlcheck.measure.markup import page_head as _head
from dlcheck.measure.markup import plain as _value
from dlcheck.measure.markup import table as _table
from dlcheck.measure.markup import with_unit as _saving
from dlcheck.measure.record import VERDICTS, Block, Effect, Fact, Record
from dlcheck.measure.verdict import EQUIVALENCE

SCRIPTS = ("d3.min.js", "plot.min.js", "page.js")

# Beside its colour each verdict has a sign, the same as in the figure.
_SIGNS = {"confirmed": "●", "refuted-no-effect": "■", "refuted-harmful": "▲", "inconclusive": "◆"}
# Of a block, in the order of the figure: what took part of its time.
_PARTS = (
    ("first", "until first batch"),
    ("wait", "waiting for batches"),
    ("copy", "copies on device"),
    ("compute", "work on device"),
    ("cpu", "CPU time"),
)
# Of what shaped a workload, where the name by itself says too little.
_LABELS = {
    "cpu_s": "CPU time of a sample",
    "wait_s": "waiting in a sample (disk, network)",
    "variation": "standard deviation of a sample's time",
    "sample_bytes": "size of a sample",
    "size": "samples",
    "ranks": "ranks at the same time",
    "page_cache": "files in the page cache",
}
_MAX_ROWS = 2_000  # of one table: a browser shows more, but nobody reads them


def render(
    records: Sequence[Record],
    *,
    title: str = "What measuring says",
    end_to_end: Record | None = None,
    margin: float = EQUIVALENCE,
) -> str:
    """The page; ``end_to_end`` is the record of several suggestions at once, ``margin`` what counts as no effect."""
    ordered = sorted(records, key=lambda one: (VERDICTS.index(one.verdict), one.location.path, one.location.line))
    scripts = [(ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS] if ordered else []
    main = "\n".join((
        *_whole(end_to_end),
        *_verdicts(ordered, margin),
        *(_effects() if ordered else ()),
        *_findings(ordered),
        *_machines([*ordered, *((end_to_end,) if end_to_end else ())]),
        *(_licences() if scripts else ()),
    ))  # fmt: skip
    return "\n".join((
        "<!doctype html>",
        '<html lang="en">',
        *_head(title, scripts),
        "<body>",
        '<a class="skip" href="#verdicts">Skip to the verdicts</a>',
        *_header(title, ordered),
        f"<main>\n{main}\n</main>",
        f'<script type="application/json" id="data">{_data(ordered, margin)}</script>',
        *(f"<script>{script}</script>" for script in scripts),
        "</body>",
        "</html>",
        "",
    ))  # fmt: skip


# The frame


def _header(title: str, records: Sequence[Record]) -> Iterator[str]:
    days = list(dict.fromkeys(words.day(one.date) for one in sorted(records, key=lambda one: one.date)))
    when = f" on {days[0] if len(days) == 1 else f'{days[0]} to {days[-1]}'}" if days else ""
    machines = list(filter(None, dict.fromkeys(identity.described(identity.of(one.machine)) for one in records)))
    where = f" on {machines[0]}" if len(machines) == 1 else f" on {len(machines)} machines" if machines else ""
    number = f"{len(records)} finding{'' if len(records) == 1 else 's'} measured"
    yield "<header>"
    yield f"<h1>{_text(title)}</h1>"
    yield f'<p class="soft">{_text(f"{number}{when}{where}, by dlcheck {__version__}.")}</p>'
    counts = Counter(one.verdict for one in records)
    shown = (f"<li>{_verdict(verdict)} {counts[verdict]}</li>" for verdict in VERDICTS if counts[verdict])
    yield f'<ul class="counts">{"".join(shown)}</ul>' if records else "<p>There is nothing to show.</p>"
    if records:
        yield "<noscript><p>The figures need JavaScript. All that they show stands in the tables, too.</p></noscript>"
    yield "</header>"


def _whole(record: Record | None) -> Iterator[str]:
    if record is None:
        return
    yield '<section class="whole" aria-labelledby="whole">'
    yield '<h2 id="whole">Suggestions together</h2>'
    yield f"<p>{_text(record.rule)}, {_text(_place(record))}</p>"
    yield f'<p class="said">{_verdict(record.verdict)}: {_text(_change(record))}</p>'
    yield f'<p class="soft">{_text(words.WORKLOADS[record.evidence])}</p>'
    yield from _comparison(record)
    yield from _command(record)
    yield "</section>"


def _verdicts(records: Sequence[Record], margin: float) -> Iterator[str]:
    if not records:
        return
    columns = ("Verdict", "Finding", "Place", "Effect, with its interval", "Workload", "Seconds")
    yield '<section aria-labelledby="verdicts">'
    yield '<h2 id="verdicts" tabindex="-1">Verdicts</h2>'
    yield '<table class="verdicts"><thead><tr>'
    yield "".join(f'<th scope="col"{_number_class(column == "Seconds")}>{column}</th>' for column in columns)
    yield "</tr></thead><tbody>"
    for number, record in enumerate(records):
        cost = record.cost.get("wall_s")
        yield (
            f"<tr><td>{_verdict(record.verdict)}</td>"
            f'<td><a href="#record-{number}">{_text(record.code)} {_text(record.rule)}</a></td>'
            f'<td class="place text" data-label="Place">{_text(_place(record))}</td>'
            f'<td class="text effect" data-label="Effect">{_text(_change(record) or "none")}</td>'
            f'<td data-label="Workload">{_text(words.WORKLOADS[record.evidence] or "none")}</td>'
            f'<td class="number" data-label="Seconds">{"" if cost is None else _figure(cost)}</td></tr>'
        )
    yield "</tbody></table>"
    yield from _legend(margin)
    yield "</section>"


def _effects() -> Iterator[str]:
    yield '<section aria-labelledby="effects">'
    yield '<h2 id="effects">Effects and their intervals</h2>'
    yield from _drawing(
        "forest",
        0,
        "forest-caption",
        "What is suggested against what is written: left of 1 it takes less time or memory, or moves more in the same "
        "time. A line is the interval in which the effect is likely to lie. The figures stand in the table above.",
    )
    yield "</section>"


# One finding


def _findings(records: Sequence[Record]) -> Iterator[str]:
    if not records:
        return
    yield '<section aria-labelledby="findings">'
    yield '<h2 id="findings">Finding by finding</h2>'
    for number, record in enumerate(records):
        yield f'<details class="record" id="record-{number}"{" open" if len(records) == 1 else ""}>'
        yield (
            f"<summary>{_sign(record.verdict)} <strong>{_text(record.code)} {_text(record.rule)}</strong> "
            f'<span class="place">{_text(_place(record))}</span> '
            f'<span class="outcome">{_text(_arrows(words.outcome(record)))}</span></summary>'
        )
        yield from _finding(number, record)
        yield "</details>"
    yield "</section>"


def _finding(number: int, record: Record) -> Iterator[str]:
    if record.reason:
        yield f"<p>{_text(record.reason)}</p>"
    yield from _comparison(record)
    if len(record.blocks) > 1:
        yield from _drawing(
            "blocks", number, f"blocks-{number}", "Each timed block; a line joins the medians of the rounds."
        )
    if any(_parts(record.blocks)):
        yield from _drawing(
            "time",
            number,
            f"time-{number}",
            "Where the time of a block goes. The parts may overlap: a device computes while the next batch is awaited.",
        )
    if len(record.memory) > 1:
        yield from _drawing(
            "memory",
            number,
            f"memory-{number}",
            "Memory of all processes together (proportional set size), batch by batch.",
        )
    yield from _raw(record)
    yield '<div class="pair">'
    yield from _guards(record)
    shaped = {_LABELS.get(name, name): _known(name, fact) for name, fact in record.workload.items()}
    yield from _facts("Workload", shaped)
    yield from _facts("Step model", _model(record))
    for name in ("counts", "ceiling", "side_effects"):
        yield from _facts(name.replace("_", " ").capitalize(), getattr(record, name) or {})
    yield from _facts(
        "Carried over to a whole run", {name: _saving(name, value) for name, value in record.saves.items()}
    )
    yield from _facts("Cost", {name: _saving(name, value) for name, value in record.cost.items()})
    yield "</div>"
    yield from _command(record)


def _model(record: Record) -> dict[str, Any]:
    """What the model of a step predicts, by how much it is off, and what each part of a step takes."""
    model = record.model or {}
    told = {name: model[name] for name in ("predicted", "error", "terms") if isinstance(model.get(name), dict)}
    shown = {name: value for name, value in model.items() if name not in told}
    for arm, value in told.get("predicted", {}).items():
        error = told.get("error", {}).get(arm)
        shown[f"{arm} predicted"] = words.quantity(value, "s") + (f", off by {words.off(error)}" if error else "")
    return {**shown, **{name: words.quantity(value, "s") for name, value in told.get("terms", {}).items()}}


def _comparison(record: Record) -> Iterator[str]:
    """What was compared, in figures and in settings."""
    rows = {"B against A": record.effect, **{f"{name} against A": one for name, one in record.controls.items()}}
    effects = {name: effect for name, effect in rows.items() if effect is not None}
    if effects and record.metric:
        what = f"{record.metric.name}, {record.metric.unit}"
        yield from _table(
            f"{what} ({'less' if record.metric.lower_is_better else 'more'} is better)",
            ("", "A", "B", "B/A", "interval", "A - B", "interval", "level", "from"),
            [_effect_row(name, effect, record.metric.unit) for name, effect in effects.items()],
            numbers=range(1, 8),
        )
    if record.noise:
        ratio, low, high = (_ratio(value) for value in (record.noise.ratio, *record.noise.ci))
        yield f'<p class="soft">A/A of the same run, written against itself: {ratio} [{low}, {high}].</p>'
    if record.arms:
        knobs = list(dict.fromkeys(knob for arm in record.arms.values() for knob in arm.config))
        rows_ = [
            (f"{name}: {arm.label}", *(_value(arm.config[knob]) if knob in arm.config else "" for knob in knobs))
            for name, arm in record.arms.items()
        ]
        yield from _table("What was compared", ("", *knobs), rows_)


def _effect_row(name: str, effect: Effect, unit: str) -> tuple[str, ...]:
    (a, b), scale = words.quantities([effect.a, effect.b], unit)
    (diff, low, high), of_diff = words.quantities([effect.diff, *effect.diff_ci], unit)
    seen = f"{effect.n_units} {effect.units}, {effect.looks} look{'' if effect.looks == 1 else 's'}"
    ratios = [_ratio(value) for value in (effect.ratio, *effect.ci)]
    return (
        name, f"{a} {scale}", f"{b} {scale}", ratios[0], f"{ratios[1]} to {ratios[2]}",
        f"{diff} {of_diff}", f"{low} to {high}", f"{100 * effect.level:.4g} %", seen,
    )  # fmt: skip


def _raw(record: Record) -> Iterator[str]:
    """The blocks and the memory as tables: folded, since the figures show them."""
    if record.blocks:
        named = [
            part
            for part in ("wait", "first", "copy", "compute", "cpu", "psi")
            if any(getattr(one, part) is not None for one in record.blocks)
        ]
        unit = record.metric.unit if record.metric else "s"
        heads = (
            "round",
            "arm",
            "position",
            f"time ({unit})",
            *(f"{part} (s)" if part != "psi" else "CPU pressure" for part in named),
        )
        rows = [
            (
                str(one.round + 1),
                one.arm,
                str(one.position + 1),
                _figure(one.t),
                *(_optional(getattr(one, part)) for part in named),
            )
            for one in record.blocks[:_MAX_ROWS]
        ]
        yield from _folded(
            f"All {len(record.blocks)} blocks", _table("", heads, rows, numbers=(0, *range(2, len(heads))))
        )
    if record.memory:
        rows = [
            (str(one.round + 1), one.arm, str(one.batches), words.quantity(one.pss, "bytes"))
            for one in record.memory[:_MAX_ROWS]
        ]
        yield from _folded(
            "Memory, batch by batch", _table("", ("round", "arm", "batches", "memory"), rows, numbers=(0, 2, 3))
        )


def _guards(record: Record) -> Iterator[str]:
    if record.guards:
        yield "<div><h3>Guards</h3>"
        yield from _table(
            "", ("guard", "state", "detail"), [(one.name, one.status, one.detail) for one in record.guards]
        )
        yield "</div>"


def _command(record: Record) -> Iterator[str]:
    if record.rerun:
        yield f"<h3>To measure it again</h3>\n<pre><code>{_text(record.rerun)}</code></pre>"


# All findings


def _machines(records: Sequence[Record]) -> Iterator[str]:
    """Each machine once, with the versions that it measured under."""
    seen: dict[str, Record] = {}
    for record in records:
        told = json.dumps(
            [identity.fingerprint(identity.of(record.machine)), dict(record.software)], sort_keys=True, default=str
        )
        seen.setdefault(told, record)
    if not any(one.machine or one.software for one in seen.values()):
        return
    yield '<section aria-labelledby="machine">'
    yield '<h2 id="machine">The machine</h2>'
    for record in seen.values():
        named = identity.of(record.machine)
        facts = {
            **named,
            **{name: value for name, value in record.machine.items() if name != "identity" and value is not None},
        }
        if len(seen) > 1:
            yield f"<h3>{_text(identity.described(named) or 'Unknown')}</h3>"
        yield '<div class="pair">'
        yield from _facts("Facts", {name: _saving(name, value) for name, value in facts.items()})
        yield from _facts("Software", record.software)
        yield "</div>"
    yield "</section>"


def _legend(margin: float) -> Iterator[str]:
    """What the words of the page mean, folded: who knows them need not scroll past."""
    share = f"{100 * margin:.4g} %"
    meanings = {
        "A, B": "A is what is written, B what is suggested. B/A below 1: the suggestion takes less.",
        "Block": "One timed stretch: an epoch, a number of batches, or the way to the first batch. Blocks of A and B "
        "take turns, so that what drifts slowly hits both alike.",
        "Round": "One fresh pair of processes, with some blocks of each arm. Processes differ by more than blocks do: "
        "rounds are what is counted. Where a start takes over 10 seconds, all stay in one process, and pairs of blocks "
        "are counted: with a wider interval, and twice the margin.",
        "Look": "The moment at which a verdict may be given: after 4, 7 and 12 rounds; with --quick after 4, and of "
        "blocks in the end only. Looking more often would find differences by chance.",
        "Interval": "Where the effect is likely to lie, by Student's t over the rounds. All looks together hold 95 %, "
        "hence the level of a single one is higher.",
        "A/A": "What is written, measured against itself in the same run: how far apart two sides are between which "
        "there is no difference.",
        "Margin": f"What counts as a difference: {share}, or what the A/A reached, where that is more.",
        "Confirmed": "The whole interval is better than the margin.",
        "Harmful": "The whole interval is worse than the margin.",
        "No effect": f"The whole interval lies within {share} of 1.",
        "Inconclusive": "None of these. It says neither that the suggestion helps nor that it does not.",
        "Workload": "How near the measured program was to yours: the program itself, its own loader, a function of "
        "yours, or a stand-in, which shows what a fault costs and not what it costs you.",
        "Guard": "What else must hold for a comparison to mean what it seems to mean. One that fails leaves a "
        "verdict at most inconclusive.",
    }
    yield '<details class="inner legend-of-words"><summary>What the words mean</summary><dl>'
    yield from (f"<dt>{_text(word)}</dt><dd>{_text(meaning)}</dd>" for word, meaning in meanings.items())
    yield "</dl></details>"


def _licences() -> Iterator[str]:
    licences = (ASSETS / "LICENSES.txt").read_text(encoding="utf-8")
    yield from _folded("Licences of the libraries in this page", [f"<pre>{_text(licences, lines=True)}</pre>"])


# Parts


def _drawing(kind: str, number: int, name: str, caption: str) -> Iterator[str]:
    # Hidden until a script has drawn something: without one there is nothing to see.
    yield f'<figure data-figure="{kind}" data-record="{number}" hidden>'
    yield f'<figcaption id="{name}">{caption}</figcaption></figure>'


def _verdict(verdict: str) -> str:
    return f'<span class="verdict {_kind(verdict)}">{_sign(verdict)} {_text(words.VERDICTS[verdict])}</span>'


def _sign(verdict: str) -> str:
    return f'<span class="verdict {_kind(verdict)}" aria-hidden="true">{_SIGNS.get(verdict, "★")}</span>'


def _kind(verdict: str) -> str:
    return verdict if verdict in _SIGNS else "other"


def _place(record: Record) -> str:
    at = record.location
    cell = "" if at.cell is None else f"cell {at.cell}:"
    return f"{at.path}:{cell}{at.line}:{at.column}"


def _change(record: Record) -> str:
    return _arrows(words.change(record)) or record.reason


def _arrows(text: str) -> str:
    # In one piece, where a line may break.
    return text.replace(" -> ", " \u2192\u00a0")


def _known(name: str, fact: Fact) -> str:
    value = fact.value
    if name == "variation" and isinstance(value, (int, float)):
        shown = f"{words.percent(value)} % of its mean"
    elif name == "page_cache" and isinstance(value, Mapping) and isinstance(value.get("resident"), (int, float)):
        shown = f"{words.percent(value['resident'])} % of {_value(value.get('files'))}"
    else:
        shown = _saving(name, value)
    return f"{shown} ({fact.source})"


def _optional(value: float | None) -> str:
    return "" if value is None else _figure(value)


def _ratio(value: float) -> str:
    return f"{value:.3f}" if 0.01 <= abs(value) < 1000 else _figure(value)


# What the figures are drawn from


def _data(records: Sequence[Record], margin: float) -> str:
    document = {
        "margin": margin,
        "verdicts": words.VERDICTS,
        "records": [_drawn(number, record) for number, record in enumerate(records)],
    }
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    # Inside of a script element only these could end it, or be taken for a comment.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _drawn(number: int, record: Record) -> dict[str, Any]:
    metric, effect, noise = record.metric, record.effect, record.noise
    unit = metric.unit if metric else "s"
    # In the figure less is always better: what moves more in the same time takes less time for the same.
    lower = metric is None or metric.lower_is_better
    size, scale = words.scale(max((abs(one.t) for one in record.blocks if math.isfinite(one.t)), default=0.0), unit)
    bytes_, memory = words.scale(max((abs(one.pss) for one in record.memory), default=0), "bytes")
    parts = list(_parts(record.blocks))
    seconds, of_parts = words.scale(max((abs(value) for _, _, value in parts), default=0.0), "s")
    ratio, low, high = _turned((effect.ratio, *effect.ci) if effect else None, lower)
    _, aa_low, aa_high = _turned((noise.ratio, *noise.ci) if noise else None, lower)
    return {
        "key": str(number),
        "label": printable(f"{record.code} {record.location.path}:{record.location.line}"),
        "verdict": record.verdict,
        "said": printable(words.outcome(record)),
        "ratio": ratio, "low": low, "high": high, "aaLow": aa_low, "aaHigh": aa_high,
        "unit": f"{scale} per {unit.partition('/')[2]}" if "/" in unit and scale != unit else scale,
        "arms": {printable(name): printable(arm.label) for name, arm in record.arms.items()},
        "blocks": [
            {"arm": printable(one.arm), "round": one.round, "t": one.t / size if math.isfinite(one.t) else None}
            for one in record.blocks
        ],
        "parts": [
            {"arm": printable(arm), "name": name, "value": value / seconds, "text": words.quantity(value, "s")}
            for arm, name, value in parts
        ],
        "partsUnit": of_parts,
        "memory": [
            {"arm": printable(one.arm), "round": one.round, "batches": one.batches, "pss": one.pss / bytes_}
            for one in record.memory
        ],
        "memoryUnit": memory,
    }  # fmt: skip


def _turned(values: tuple[float, float, float] | None, lower: bool) -> tuple[float | None, float | None, float | None]:
    """A ratio and its interval as the figure has them; None for what has no place on its scale."""
    if values is None:
        return None, None, None
    ratio, low, high = values
    if not lower:
        ratio, low, high = (1 / one if one else math.inf for one in (ratio, high, low))
    plain = [one if math.isfinite(one) and one > 0 else None for one in (ratio, low, high)]
    return plain[0], plain[1], plain[2]


def _parts(blocks: Sequence[Block]) -> Iterator[tuple[str, str, float]]:
    """Arm, name and median seconds of each part of a block's time that was measured."""
    for part, name in _PARTS:
        for arm in sorted({one.arm for one in blocks}):
            found = [getattr(one, part) for one in blocks if one.arm == arm]
            known = [value for value in found if value is not None and math.isfinite(value)]
            if known:
                yield arm, name, median(known)
