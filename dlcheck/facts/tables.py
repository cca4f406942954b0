"""Cut long tables of constants before libcst reads them: most of its time would go there, and no rule asks for it.

A vocabulary of 25,000 words takes libcst and the model ten seconds.  What is cut becomes blanks, so that all else
stays where it is, behind a mark with the number of items: ``*24960`` in a list, ``**24960`` in a dict, which are
syntax but no Python that runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cached_property

LONG = 1000  # constants in a literal
KEPT = 40  # items of a long one: more than any rule looks at

_LINE_END = re.compile(r"\r\n|\r|\n")
_COMMENT = re.compile(r"#[^\r\n]*")


def without_tables(text: str, tree: ast.AST) -> str:
    """The text of a module with as many characters, in which long literals of constants have a few items only."""
    if text.count(",") < LONG:
        return text
    cuts = _Tables(text).cuts_in(tree)
    parts: list[str] = []
    at = 0
    for start, end, mark in sorted(cuts):
        if start >= at:  # not in what is cut already
            # At the end, where a tuple ends, too.
            parts += (text[at:start], ",", mark.rjust(end - start - 1))
            at = end
    return "".join((*parts, text[at:]))


class _Tables:
    def __init__(self, text: str) -> None:
        self.text = text
        self.cuts: list[tuple[int, int, str]] = []
        self._weights: dict[ast.AST, int | None] = {}

    def cuts_in(self, tree: ast.AST) -> list[tuple[int, int, str]]:
        for node in ast.walk(tree):
            if isinstance(node, (ast.List, ast.Tuple, ast.Set, ast.Dict)):
                self._weight(node)
        return self.cuts

    def _weight(self, node: ast.AST | None) -> int | None:
        """How many constants are left in a literal; None where it holds anything else."""
        if node.__class__ is ast.Constant:
            return 1
        if isinstance(node, ast.UnaryOp):
            return 1 if node.operand.__class__ is ast.Constant else None
        if not isinstance(node, (ast.List, ast.Tuple, ast.Set, ast.Dict)):
            return None
        if node not in self._weights:
            self._weights[node] = self._weight_of_items(node)
        return self._weights[node]

    def _weight_of_items(self, node: ast.List | ast.Tuple | ast.Set | ast.Dict) -> int | None:
        weights = [self._weight(part) for part in _parts(node)]  # all of them: a table may lie in any
        total = 0
        for weight in weights:
            if weight is None:
                return None
            total += weight
        if total > LONG and self._cut(node):
            return sum(weight or 0 for weight in weights[:KEPT])
        return total

    def _cut(self, node: ast.List | ast.Tuple | ast.Set | ast.Dict) -> bool:
        firsts = node.keys if isinstance(node, ast.Dict) else node.elts
        lasts = node.values if isinstance(node, ast.Dict) else node.elts
        last, following = lasts[KEPT - 1 : KEPT], firsts[KEPT : KEPT + 1]
        if not last or not following or following[0] is None:
            return False
        start, end = self._end(last[0]), self._end(node) - 1
        between = _COMMENT.sub("", self.text[start : self._start(following[0])])
        brackets = self.text[self._start(node)] + self.text[end]
        if between.strip() != "," or brackets not in ("[]", "()", "{}"):
            return False  # brackets around an item, or none around the whole
        star = "**" if isinstance(node, ast.Dict) else "*"
        self.cuts.append((start, end, f"{star}{len(firsts) - KEPT}"))
        return True

    # -- places

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in _LINE_END.finditer(self.text))]

    def _start(self, node: ast.expr) -> int:
        return self._offset(node.lineno, node.col_offset)

    def _end(self, node: ast.expr) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.end_lineno, node.end_col_offset)

    def _offset(self, line: int, column: int) -> int:
        """The offset of a place that CPython names by a line and a number of bytes."""
        start = self._starts[line - 1]
        characters = self.text[start : start + column]
        return start + (column if characters.isascii() else len(characters.encode()[:column].decode()))


def _parts(node: ast.List | ast.Tuple | ast.Set | ast.Dict) -> Iterator[ast.expr | None] | Sequence[ast.expr]:
    if isinstance(node, ast.Dict):
        # A key that is no plain constant makes the entry no part of a table.
        return (
            value if key.__class__ is ast.Constant else None for key, value in zip(node.keys, node.values, strict=True)
        )
    return node.elts
