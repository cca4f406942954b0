"""What the pages are made of: text that is safe in HTML, tables, facts, and a head that lets nothing in.

Paths, messages and reasons come from code that anybody may have written: each is escaped where it enters a page, and
the page's own policy lets no other script run.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dlcheck.harmless import printable
from dlcheck.measure import words

ASSETS = Path(__file__).parent / "assets"


def page_head(title: str, scripts: Iterable[str]) -> Iterator[str]:
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{one}'" for one in hashes) or "'none'"
    # Styles are inline for good: Plot writes them into its figures.  Nothing may be fetched, sent or framed.
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    yield "<head>"
    yield '<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="referrer" content="no-referrer">'
    yield f"<title>{escaped(title)} - dlcheck</title>"
    yield f"<style>\n{(ASSETS / 'page.css').read_text(encoding='utf-8')}</style>"
    yield "</head>"


def folded(summary: str, inside: Iterable[str]) -> Iterator[str]:
    yield f'<details class="inner"><summary>{escaped(summary)}</summary>'
    yield from inside
    yield "</details>"


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()
) -> Iterator[str]:
    """A table of plain texts; it scrolls by itself where the screen is narrow."""
    right = frozenset(numbers)
    label = caption or ", ".join(filter(None, heads))
    yield f'<div class="scroll" role="region" tabindex="0" aria-label="{escaped(label)}"><table>'
    if caption:
        yield f"<caption>{escaped(caption)}</caption>"
    yield "<thead><tr>"
    yield "".join(
        f'<th scope="col"{number_class(at in right)}>{escaped(head)}</th>' if head else "<td></td>"
        for at, head in enumerate(heads)
    )
    yield "</tr></thead><tbody>"
    for row in rows:
        cells = (f"<td{number_class(at in right)}>{escaped(cell)}</td>" for at, cell in enumerate(row))
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"


def fact_list(title: str, facts: Mapping[str, Any]) -> Iterator[str]:
    if not facts:
        return
    yield f'<div><h3>{escaped(title)}</h3><table class="facts"><tbody>'
    for name, value in facts.items():
        shown = value if isinstance(value, str) else plain(value)
        label = name.removesuffix("_s").replace("_", " ")
        yield f'<tr><th scope="row">{escaped(label)}</th><td>{escaped(shown)}</td></tr>'
    yield "</tbody></table></div>"


def number_class(number: bool) -> str:
    return ' class="number"' if number else ""


def escaped(text: str, *, lines: bool = False) -> str:
    """Text as HTML, in elements and in attributes, without what could hide or turn it around."""
    shown = "\n".join(map(printable, text.split("\n"))) if lines else printable(text)
    return html.escape(shown, quote=True)


def plain(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, float):
        return figure(value)
    if isinstance(value, (str, int)):
        return str(value)
    if isinstance(value, (list, tuple)) and all(isinstance(one, (str, int, float)) for one in value):
        return ", ".join(map(plain, value)) or "none"
    return json.dumps(value, ensure_ascii=False, default=str)


def with_unit(name: str, value: Any) -> str:
    """A fact whose name tells its unit."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if name.endswith("_s"):
            return words.quantity(value, "s")
        if name == "bytes" or name.endswith("_bytes") or name.startswith("shm") or "memory" in name:
            return words.quantity(value, "bytes")
    return plain(value)


def figure(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "?" if math.isnan(value) else "∞" if value > 0 else "-∞"
