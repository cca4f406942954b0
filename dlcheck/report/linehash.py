"""GitHub code scanning's fingerprint of a line, ``primaryLocationLineHash``.

A hash of the 100 characters from the line's start on, blanks left out, and the line's number among
those with an equal hash: it survives lines moving above it.  The algorithm is that of
github/codeql-action (src/fingerprints.ts), which works on UTF-16 code units.
"""

from __future__ import annotations

from collections import Counter

_WINDOW = 100
_BASE = 37
_MASK = 2**64 - 1
_END = 0xFFFF
_LINE_FEED = 10


def line_hashes(text: str) -> list[str]:
    """The fingerprint of each line of a text."""
    units, starts = _units(text)
    # Hash of the first n units, for each n: that of a window is the difference of two.
    sums = [0]
    total = 0
    for unit in units:
        total = (total * _BASE + unit) & _MASK
        sums.append(total)
    shift = pow(_BASE, _WINDOW, _MASK + 1)
    seen: Counter[int] = Counter()
    hashes = []
    for start in starts:
        window = (sums[start + _WINDOW] - sums[start] * shift) & _MASK
        seen[window] += 1
        hashes.append(f"{window:x}:{seen[window]}")
    return hashes


def _units(text: str) -> tuple[list[int], list[int]]:
    """UTF-16 units without blanks, an end mark and padding behind them; where each line begins."""
    squeezed = text.replace("\r\n", "\n").replace("\r", "\n").replace(" ", "").replace("\t", "")
    encoded = squeezed.encode("utf-16-le", "surrogatepass")
    units = [low | high << 8 for low, high in zip(encoded[::2], encoded[1::2], strict=True)]
    starts = [0, *(number + 1 for number, unit in enumerate(units) if unit == _LINE_FEED)]
    return [*units, _END, *[0] * _WINDOW], starts
