"""`--report page.html` of a search: a heat map, all figures, and the proof, on one page that needs no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlcheck import __version__
from dlcheck.advise.tuning import text
from dlcheck.advise.tuning.result import Proof, Result, Row
from dlcheck.measure import identity, words
from dlcheck.measure.markup import ASSETS, escaped, fact_list, folded, page_head, table, with_unit

TITLE = "Which loader options to take"
WORST = 2.0  # times the best: slower than that is as dark as it gets
DARKEST = 75  # per cent of the colour: the figures in it are still read
STYLE = (ASSETS / "tuning.css").read_text(encoding="utf-8")
SIGNS = {text.CHOSEN: "★", text.NOW: "●"}


def render(result: Result) -> str:
    """The page; it has no script, and loads nothing."""
    return "\n".join((
        "<!doctype html>",
        '<html lang="en">',
        *page_head(TITLE, ()),
        "<body>",
        f"<style>\n{STYLE}</style>",
        '<a class="skip" href="#settings">Skip to the table</a>',
        *_header(result),
        "<main>",
        *_choice(result),
        *heat_map(result),
        *_settings(result),
        *_starts(result),
        *_proof(result.proof),
        *_around(result),
        "</main>",
        "</body>",
        "</html>",
        "",
    ))  # fmt: skip


def _header(result: Result) -> Iterator[str]:
    where = identity.described(identity.of(result.machine))
    on = f" on {where}" if where else ""
    ranks = f", {result.ranks} ranks at once" if result.ranks > 1 else ""
    said = f"{len(result.rows)} settings tried on {words.day(result.date)}{on}{ranks}, by dlcheck {__version__}."
    yield "<header>"
    yield f"<h1>{TITLE}</h1>"
    yield f'<p class="soft">{escaped(said)}</p>'
    if result.status in text.REASONS:
        yield f"<p><strong>Incomplete</strong>: {escaped(text.REASONS[result.status])}.</p>"
    yield "</header>"


def _choice(result: Result) -> Iterator[str]:
    yield '<section class="whole" aria-labelledby="choice">'
    yield '<h2 id="choice">The choice</h2>'
    if result.chosen is None or result.present is None or result.choice is None:
        yield "<p>No setting could be run.</p>"
    else:
        yield f'<p class="said">{escaped(text.headline(result, result.chosen, result.present))}</p>'
        yield f"<p>{escaped(result.choice.reason)}</p>"
        if result.proof is not None:
            yield f"<p>Against what the loader has now: {escaped(text.proof(result.proof))}</p>"
        yield f'<p class="soft">{escaped(text.step(result))}; {escaped(words.WORKLOADS[result.evidence])}</p>'
    yield from (f'<p class="soft">{escaped(note)}</p>' for note in [*result.removed, *result.notes])
    yield "</section>"


# The heat map


def heat_map(result: Result) -> Iterator[str]:
    """Workers against pinned memory, or against prefetch where pinned memory has one value; each cell its best."""
    rows = [row for row in result.rows if row.step_s is not None or row.failure]
    ran = [row.step_s for row in rows if row.ran and row.step_s is not None]
    if not ran:
        return
    by_pin = len({row.setting.pin for row in rows}) > 1
    found = {_column(row, by_pin) for row in rows if row.setting.workers or by_pin} or {None}
    columns = sorted(found, key=lambda one: one or 0)
    yield '<section aria-labelledby="map">'
    yield '<h2 id="map">Milliseconds of a step</h2>'
    yield '<div class="scroll" role="region" tabindex="0" aria-label="heat map"><table class="heat">'
    yield "<caption>The paler, the nearer to the best. ★ chosen, ● what the loader has now.</caption>"
    heads = "".join(f'<th scope="col">{escaped(_head(one, by_pin))}</th>' for one in columns)
    yield f'<thead><tr><th scope="col">workers</th>{heads}</tr></thead><tbody>'
    for number in sorted({row.setting.workers for row in rows}):
        of = [row for row in rows if row.setting.workers == number]
        yield f'<tr><th scope="row">{number}</th>'
        if not number and not by_pin:  # prefetch means nothing there
            yield _cell(result, of, min(ran), len(columns))
        else:
            yield from (_cell(result, [row for row in of if _column(row, by_pin) == one], min(ran)) for one in columns)
        yield "</tr>"
    yield "</tbody></table></div></section>"


def _column(row: Row, by_pin: bool) -> int | bool | None:
    return row.setting.pin if by_pin else row.setting.prefetch


def _head(column: int | bool | None, by_pin: bool) -> str:
    if by_pin:
        return "pinned" if column else "not pinned"
    return f"prefetch {column}" if column is not None else ""


def _cell(result: Result, rows: Sequence[Row], least: float, span: int = 1) -> str:
    wide = f' colspan="{span}"' if span > 1 else ""
    ran = [row for row in rows if row.ran]
    if not ran:
        said = "failed" if rows else ""
        return f'<td class="none"{wide}>{said}</td>'
    best = min(ran, key=lambda row: row.step_s or 0.0)
    assert best.step_s is not None
    share = min(1.0, (best.step_s / least - 1) / (WORST - 1))
    signs = "".join(dict.fromkeys(SIGNS[sign] for row in rows for sign in text.mark(result, row)))
    return f'<td style="--heat: {share * DARKEST:.0f}%"{wide}>{escaped(text.ms(best.step_s))} {signs}</td>'


# The tables


def _settings(result: Result) -> Iterator[str]:
    yield '<section aria-labelledby="settings">'
    yield '<h2 id="settings" tabindex="-1">All settings</h2>'
    rows = []
    for row in result.rows:
        found = text.cells(result, row)
        sign = "".join(SIGNS[one] for one in text.mark(result, row))
        rows.append([sign, result.name(row), *found, *[""] * (len(text.HEADS) - 2 - len(found))])
    yield from table("", text.HEADS, rows, numbers=range(3, len(text.HEADS)))
    blocks = [
        (result.name(row), str(number + 1), text.ms(block), f"{wait / block:.0%}")
        for row in result.rows
        for number, (block, wait) in enumerate(zip(row.blocks, row.waits, strict=True))
    ]
    heads = ("setting", "block", "ms/step", "waiting")
    yield from folded(f"All {len(blocks)} blocks", table("", heads, blocks, numbers=(1, 2, 3)))
    yield "</section>"


def _starts(result: Result) -> Iterator[str]:
    if not result.starts:
        return
    yield '<section aria-labelledby="starts">'
    yield '<h2 id="starts">Start and end of an epoch</h2>'
    rows = [
        (one.setting.method or "", "yes" if one.setting.persistent else "no", text.start(one)) for one in result.starts
    ]
    yield from table("", ("start method", "persistent workers", "takes"), rows)
    yield "</section>"


def _proof(proof: Proof | None) -> Iterator[str]:
    if proof is None:
        return
    yield '<section aria-labelledby="proof">'
    yield '<h2 id="proof">The proof</h2>'
    yield f"<p>{escaped(text.said(proof))}: {escaped(proof.reason)}</p>"
    effects = {"chosen against now": proof.effect, **proof.controls}
    rows = [
        (
            name,
            words.quantity(one.a, proof.metric.unit),
            words.quantity(one.b, proof.metric.unit),
            f"{one.ratio:.3f}",
            f"{one.ci[0]:.3f} to {one.ci[1]:.3f}",
            f"{one.n_units} {one.units}",
        )
        for name, one in effects.items()
        if one is not None and proof.metric is not None
    ]
    if rows:
        yield from table("", ("", "A", "B", "B/A", "interval", "from"), rows, numbers=range(1, 5))
    if proof.guards:
        yield from table(
            "Guards", ("guard", "state", "detail"), [(one.name, one.status, one.detail) for one in proof.guards]
        )
    yield "</section>"


def _around(result: Result) -> Iterator[str]:
    named = identity.of(result.machine)
    facts = {**named, **{name: value for name, value in result.machine.items() if name != "identity"}}
    yield '<section aria-labelledby="machine">'
    yield '<h2 id="machine">What it was tried on</h2><div class="pair">'
    yield from fact_list(
        "Machine", {name: with_unit(name, value) for name, value in facts.items() if value is not None}
    )
    yield from fact_list("Software", result.software)
    yield from fact_list("Loader", {name: with_unit(name, value) for name, value in result.workload.items()})
    yield from fact_list("Cost", {name: with_unit(name, value) for name, value in result.cost.items()})
    yield "</div>"
    if result.rerun:
        yield f"<h3>To search again</h3>\n<pre><code>{escaped(result.rerun)}</code></pre>"
    yield "</section>"
