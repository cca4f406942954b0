"""The picture of the README: what dlcheck prints, as a drawing of a terminal.

`python -m website.terminal` writes it anew; a test says whether it is up to date.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "devices.svg"
COMMAND = "dlcheck examples/faulty/devices.py"

# Sizes in units of the drawing; the advance is that of common monospaced fonts at this size, and is enforced.
SIZE, ADVANCE, LINE, MARGIN, BAR = 13, 7.8, 19, 16, 28
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#76e3ea"}
NAMED = 'role="img" aria-labelledby="name" aria-describedby="told"'
STYLE = re.compile(r"\x1b\[([\d;]*)m")
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"


@functools.cache
def output() -> str:
    """What the command prints to a terminal with colours."""
    unset = {"NO_COLOR", "DLCHECK_OUTPUT_FORMAT", "PYTHONPATH"}
    environment = {key: value for key, value in os.environ.items() if key not in unset}
    run = subprocess.run(
        [sys.executable, "-m", "dlcheck", "--color", "always", "--no-cache", *COMMAND.split()[1:]],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if run.returncode != 1:
        raise RuntimeError(f"`{COMMAND}` exits with {run.returncode}, and should find something: {run.stderr}")
    return run.stdout


def spans(line: str) -> Iterator[tuple[int, str, str]]:
    """The stretches of a line that have one style: column, codes (`1;33`), text."""
    column, codes, at = 0, "", 0
    for found in [*STYLE.finditer(line), None]:
        text = line[at : found.start() if found else len(line)]
        if text:
            yield column, codes, text
            column += len(text)
        if found:
            codes, at = found[1].removeprefix("0"), found.end()


def drawing(text: str, command: str = COMMAND) -> str:
    """An SVG of a terminal in which the command has printed the text."""
    lines = [f"\x1b[1;32m$\x1b[0m {command}", *text.rstrip("\n").splitlines()]
    columns = max(len(STYLE.sub("", line)) for line in lines)
    width, height = round(2 * MARGIN + columns * ADVANCE), BAR + 2 * MARGIN + len(lines) * LINE
    told = escape(STYLE.sub("", "\n".join(lines)))
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {NAMED}>',
        f'<title id="name">{escape(command)}</title>',
        f'<desc id="told">{told}</desc>',
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>',
        *(f'<circle cx="{18 + 18 * n}" cy="17" r="5.5" fill="#30363d"/>' for n in range(3)),
        f'<g font-family="{FONTS}" font-size="{SIZE}" fill="#c9d1d9" style="white-space: pre">',
        *(drawn for number, line in enumerate(lines) for drawn in _line(line, BAR + MARGIN + number * LINE + SIZE)),
        "</g>",
        "</svg>",
        "",
    ))  # fmt: skip


def _line(line: str, y: int) -> Iterator[str]:
    """The stretches of a line, each as wide as its letters are many, whatever font is there."""
    for column, codes, text in spans(line):
        kept = text.strip(" ")
        if kept:
            style = codes.split(";")
            colour = next((f' fill="{COLOURS[code]}"' for code in style if code in COLOURS), "")
            bold = ' font-weight="bold"' if "1" in style else ""
            x, length = MARGIN + (column + text.index(kept[0])) * ADVANCE, len(kept) * ADVANCE
            place = f'x="{x:.1f}" y="{y}" textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs"'
            yield f"<text {place}{colour}{bold}>{escape(kept)}</text>"


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(drawing(output()), encoding="utf-8")
