"""The drawings of the pages, made from the code, the example project and a recorded measurement.

A document names them in a comment, `<!-- figure: NAME -->`, which only the site sees: the words around it stand by
themselves.
"""

from __future__ import annotations

import ast
import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dlcheck.config import Config
from dlcheck.engine import check
from dlcheck.findings import Place
from dlcheck.measure import store, words
from dlcheck.measure.record import Block, Record
from dlcheck.model.values import Const, Made, Unknown
from dlcheck.model.worlds import ANY, World, product

if TYPE_CHECKING:
    from dlcheck.model import Project
    from dlcheck.model.loaders import Loader, OptionAlt

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "docs" / "recorded" / "persistent-workers.json"
EXAMPLE = "examples/faulty"
REPORT = "recorded/persistent-workers.html"  # where the site has it
COMMENT = re.compile(r"^<!-- figure: (?P<name>[\w-]+) -->$", re.MULTILINE)


def inserted(text: str) -> str:
    """A document with its drawings; raises KeyError for one that nobody makes."""
    return COMMENT.sub(lambda found: f"\n{FIGURES[found['name']]()}\n", text)


@contextmanager
def _in_the_repository() -> Iterator[None]:
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        yield
    finally:
        os.chdir(before)


def _figure(inside: str, caption: str) -> str:
    return f"<figure>\n{inside}\n<figcaption>{caption}</figcaption>\n</figure>"


# The house

# What the pipeline is made of. What is left out stands beside it: caches, settings, other reports.
PARTS = ("cli", "lsp", "fixing", "engine", "checks", "edits", "model", "facts", "files", "source", "findings")
BOX, GAP, ROW = 104, 22, 62


def imports() -> dict[str, set[str]]:
    """Which of the parts each part imports, read from its sources."""
    found: dict[str, set[str]] = {part: set() for part in PARTS}
    for part in PARTS:
        place = ROOT / "dlcheck" / part
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]:
            for node in ast.walk(ast.parse(file.read_bytes())):
                for name in _imported(node):
                    first = name.split(".")[1] if name.startswith("dlcheck.") else ""
                    if first in found and first != part:
                        found[part].add(first)
    return found


def _imported(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def layers(arrows: Mapping[str, set[str]]) -> dict[str, int]:
    """How far below the top each part stands: one row below all that import it; raises RecursionError for a circle."""

    def depth(part: str) -> int:
        return 1 + max((depth(other) for other, to in arrows.items() if part in to), default=-1)

    return {part: depth(part) for part in arrows}


def reduced(arrows: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Without the arrows that others imply."""

    def below(part: str) -> set[str]:
        return {deeper for other in arrows[part] for deeper in (other, *below(other))}

    return {part: {one for one in to if not any(one in below(two) for two in to)} for part, to in arrows.items()}


def house() -> str:
    """The parts of dlcheck as boxes, each above what it imports."""
    arrows = reduced(imports())
    depths = layers(arrows)
    rows = [[part for part in PARTS if depths[part] == row] for row in range(max(depths.values()) + 1)]
    width, height = max(len(row) for row in rows) * (BOX + GAP) + GAP, len(rows) * ROW
    middle = {
        part: (width / 2 + (index - (len(row) - 1) / 2) * (BOX + GAP), (number + 0.5) * ROW)
        for number, row in enumerate(rows)
        for index, part in enumerate(row)
    }
    drawn = [_open_svg("drawing", width, height, "Imports of the parts of dlcheck")]
    for part, others in arrows.items():
        drawn += [mark for other in sorted(others) for mark in _arrow(*middle[part], *middle[other])]
    for part, (x, y) in middle.items():
        drawn.append(f'<rect x="{x - BOX / 2:g}" y="{y - 16:g}" width="{BOX}" height="32" rx="4"/>')
        drawn.append(f'<text x="{x:g}" y="{y + 5:g}">{part}</text>')
    caption = "Who imports whom, read from the sources; arrows that others imply are left out."
    return _figure("\n".join([*drawn, "</svg>"]), caption)


def _open_svg(kind: str, width: float, height: float, name: str) -> str:
    size = f'viewBox="0 0 {width:g} {height:g}" style="max-width: {width:g}px"'
    return f'<svg class="{kind}" {size} role="img" aria-label="{escape(name)}">'


def _arrow(x: float, y: float, to_x: float, to_y: float) -> Iterator[str]:
    """From the lower edge of a box to the upper edge of another."""
    half = (y + to_y) / 2
    yield f'<path d="M{x:g} {y + 16:g} C{x:g} {half:g} {to_x:g} {half:g} {to_x:g} {to_y - 17:g}"/>'
    yield f'<path class="head" d="M{to_x - 4:g} {to_y - 23:g} L{to_x:g} {to_y - 16:g} L{to_x + 4:g} {to_y - 23:g} Z"/>'


# A finding and its places


@functools.cache
def places(code: str) -> list[tuple[Place, str, str]]:
    """The places of the example's finding of a rule: place, line of code, caption."""
    with _in_the_repository():
        report = check([EXAMPLE], Config(isolated=True))
    finding = next(one for one in report.findings if one.code == code)
    spots = [(finding.place, finding.message), *((one, one.message) for one in finding.related)]
    return [(place, _line(place), caption) for place, caption in spots]


def _line(place: Place) -> str:
    return (ROOT / place.path).read_text(encoding="utf-8").splitlines()[place.line - 1].strip()


def chain() -> str:
    """The places that a finding rests on, one below the other."""
    boxes = [
        f'<div class="place"><span class="where">{escape(place.path)}:{place.line}</span>'
        f"<code>{escape(line)}</code><span>{_code(caption)}</span></div>"
        for place, line, caption in places("DLC202")
    ]
    joined = '\n<div class="then">↑</div>\n'.join(boxes)
    caption = "One finding of the example project (DLC202), with all that it rests on, as the report gives it."
    return _figure(f'<div class="chain">\n{joined}\n</div>', caption)


def _code(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text, quote=False))


# Worlds

SHOWN = ("num_workers", "pin_memory", "shuffle", "sampler")


class Row(NamedTuple):
    """A world: what the user chose, by the name of the argument, and what the options are then."""

    chosen: dict[str, str]
    options: dict[str, str]


@functools.cache
def worlds() -> list[Row]:
    """The worlds of the loader that the example's `train_loader` makes."""
    found: list[Row] = []

    def survey(project: Project) -> list[Any]:
        loader = next(one for one in project.loaders if _comes_from(one, "train_loader"))
        found.extend(_rows(loader))
        return []

    with _in_the_repository():
        check([EXAMPLE], Config(isolated=True), survey=survey)
    return found


def _comes_from(loader: Loader, function: str) -> bool:
    """Whether a loader is built for one function that calls for it, and for no other."""
    site = loader.ref.point.frame.site
    return site is not None and site.link.scope.name == function


def _rows(loader: Loader) -> Iterator[Row]:
    combined: list[tuple[World, dict[str, str]]] = [(ANY, {})]
    for name in SHOWN:
        alternatives = [(alt.world, {name: _value(alt)}) for alt in loader.option(name)]
        combined = [
            (both, {**options, **more})
            for world, options in combined
            for other, more in alternatives
            for both in product([world], [other])
        ]
    for world, options in combined:
        chosen = {_argument(loader, key): str(choice) for key, choice in world.choices.items() if _is_free(key)}
        yield Row(chosen, options)


def _is_free(key: Any) -> bool:
    return isinstance(key, tuple) and key[0] == "free"


def _argument(loader: Loader, key: Any) -> str:
    """The name of a command-line argument, of which the key has the module and the node."""
    _, (_, module, at) = key
    source = next(one for one in loader.project.loaded() if one.name == module)
    place = source.source.place(*source.facts.span(at))
    named = re.search(r'"(--[\w-]+)"', _line(place))
    assert named is not None, f"{place.path}:{place.line} defines no argument"
    return named[1]


def _value(alt: OptionAlt) -> str:
    if isinstance(alt.value, Unknown):
        return "unknown"
    text = repr(alt.value.value) if isinstance(alt.value, Const) else f"{_path(alt.value).rpartition('.')[2]}(…)"
    return text if alt.given else f"{text} (torch's default)"


def _path(value: object) -> str:
    assert isinstance(value, Made), f"{value} is of a kind that this figure cannot show"
    return value.path


def table_of_worlds() -> str:
    """The worlds of a loader, a row each."""
    rows = worlds()
    arguments = sorted({name for row in rows for name in row.chosen})
    said = {"default": "not given", "other": "given", None: "any"}
    head = "".join(f"<th><code>{escape(name)}</code></th>" for name in (*arguments, *SHOWN))
    body = "".join(
        "<tr>"
        + "".join(f"<td>{said[row.chosen.get(name)]}</td>" for name in arguments)
        + "".join(f"<td><code>{escape(row.options[name])}</code></td>" for name in SHOWN)
        + "</tr>\n"
        for row in rows
    )
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>"
    return _figure(
        table, f"The worlds of the loader that <code>train_loader</code> of {EXAMPLE} makes, as the model has them."
    )


# A measurement

WIDE, TALL, LEFT = 720, 200, 56


def record() -> Record:
    """The recorded measurement; raises ValueError where it is none."""
    return store.read(str(RECORD))


def measured() -> str:
    """The blocks of the record in the order in which they ran, and what follows from them."""
    one = record()
    blocks = [block for block in one.blocks if block.position >= 0]
    rounds = sorted({block.round for block in blocks})
    top, step = max(block.t for block in blocks), (WIDE - LEFT) / (len(blocks) + len(rounds))
    drawn = [_open_svg("drawing bars", WIDE, TALL + 44, one.reason)]
    for share in (0.5, 1.0):
        y = TALL - share * (TALL - 20)
        drawn.append(f'<path class="grid" d="M{LEFT} {y:g} H{WIDE}"/>')
        drawn.append(f'<text class="axis" x="{LEFT - 8}" y="{y + 4:g}">{share * top * 1000:.0f} ms</text>')
    x = LEFT + step / 2
    for number in rounds:
        ran = [block for block in blocks if block.round == number]
        middle = x + len(ran) * step / 2
        drawn.append(f'<text class="label" x="{middle:g}" y="{TALL + 36}">round {number + 1}</text>')
        for block in ran:
            drawn += _bar(block, x, step, block.t / top * (TALL - 20))
            x += step
        x += step
    return _figure("\n".join([*drawn, "</svg>", *_said(one)]), _where(one))


def _bar(block: Block, x: float, step: float, tall: float) -> Iterator[str]:
    """A block as a bar, with the letter of its arm below."""
    kind, letter = {"A": ("a", "A"), "B": ("b", "B")}.get(block.arm, ("again", "A2"))
    size = f'x="{x:g}" y="{TALL - tall:g}" width="{step * 0.8:g}" height="{tall:g}"'
    yield f'<rect class="{kind}" {size}><title>{escape(block.arm)}: {block.t * 1000:.0f} ms</title></rect>'
    yield f'<text class="label small" x="{x + step * 0.4:g}" y="{TALL + 16}">{letter}</text>'


def _said(one: Record) -> Iterator[str]:
    yield '<dl class="options">'
    for name, text in (
        ("The line in reports", words.line(one)),
        ("Why", one.reason),
        *((f"Guard {guard.name}: {guard.status}", guard.detail) for guard in one.guards),
        ("To measure it again", one.rerun),
    ):
        yield f"<dt>{escape(name)}</dt>" + (f"<dd>{_code(text)}</dd>" if text else "")
    yield "</dl>"
    yield f'<p><a href="{REPORT}">The page that <code>--report</code> writes of it</a></p>'


def _where(one: Record) -> str:
    identity: Mapping[str, Any] = one.machine["identity"]
    software = one.software
    return (
        "Time per epoch of each timed block, in the order in which they ran: A as written, B as suggested, A2 what is "
        f"written once more, to tell the noise. Recorded on {words.day(one.date)} at <code>{EXAMPLE}</code>: "
        f"{identity['cores']} cores of {escape(identity['cpu'])}, {escape(identity['os'])}, "
        f"Python {software['python']}, torch {software['torch']}."
    )


FIGURES: dict[str, Callable[[], str]] = {
    "house": house,
    "chain": chain,
    "worlds": table_of_worlds,
    "record": measured,
}
