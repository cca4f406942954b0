"""The small changes that ``mutants.py`` makes to a module, one at a time.

Left alone is what says nothing of behaviour: annotations, docstrings, ``__all__``, imports, assertions (they tell the
type checker what is so), sentences for people (texts with a blank in them), and the texts of f-strings, whose places
older Pythons do not know.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
SWAPPED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the bytes from ``start`` to ``end`` become ``new``.

    ``first`` and ``last`` are the lines of the statement, or of the head of a compound one.
    """

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str
    first: int
    last: int
    at_import: bool
    digest: str

    @property
    def key(self) -> str:
        """The same as long as the file is the same."""
        return f"{self.path}:{self.digest}:{self.start}:{self.end}:{self.new}"

    def applied(self, text: bytes) -> bytes:
        return text[: self.start] + self.new.encode() + text[self.end :]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: `{' '.join(self.old.split())}` -> `{self.new}`"


def of(text: bytes, path: str) -> list[Mutant]:
    """All mutants of a module, in the order of its lines."""
    return list(_Module(text, path).mutants())


class _Module:
    def __init__(self, text: bytes, path: str) -> None:
        self.text, self.path = text, path
        self.digest = hashlib.sha256(text).hexdigest()[:12]
        self.starts = [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def mutants(self) -> Iterator[Mutant]:
        yield from self.block(ast.parse(self.text).body, at_import=True)

    def block(self, statements: list[ast.stmt], at_import: bool) -> Iterator[Mutant]:
        for statement in statements:
            if _is_left_alone(statement):
                continue
            inner = isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef))
            for node, new in _changes(statement):
                yield self.mutant(statement, node, new, at_import)
            for name in ("body", "orelse", "finalbody"):
                yield from self.block(getattr(statement, name, []), at_import and not inner)
            for handler in getattr(statement, "handlers", []):
                yield from self.block(handler.body, at_import)
            for case in getattr(statement, "cases", []):
                yield from self.block(case.body, at_import)

    def mutant(self, statement: ast.stmt, node: ast.expr | ast.stmt, new: str, at_import: bool) -> Mutant:
        start, end = self.starts[node.lineno - 1] + node.col_offset, self.end_of(node)
        body = getattr(statement, "body", None) or getattr(statement, "cases", None)
        if isinstance(body, list):
            head = body[0].pattern if isinstance(body[0], ast.match_case) else body[0]
            last = max(statement.lineno, head.lineno - 1)
        else:
            last = statement.end_lineno or statement.lineno
        old = self.text[start:end].decode()
        return Mutant(self.path, node.lineno, start, end, old, new, statement.lineno, last, at_import, self.digest)

    def end_of(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.starts[node.end_lineno - 1] + node.end_col_offset


def _is_left_alone(statement: ast.stmt) -> bool:
    if isinstance(statement, (ast.Import, ast.ImportFrom, ast.Assert, ast.Pass)):
        return True
    if isinstance(statement, ast.If) and isinstance(statement.test, ast.Name) and statement.test.id == "TYPE_CHECKING":
        return True
    if isinstance(statement, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == "__all__" for target in statement.targets)
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _changes(statement: ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """What of a statement becomes what; of a compound one only its head."""
    if isinstance(statement, ast.Return) and statement.value is not None and not _is_false(statement.value):
        yield statement, "return None"
    elif isinstance(statement, ast.Expr):
        if isinstance(statement.value, (ast.Yield, ast.YieldFrom)):
            yield statement, f"False and ({ast.unparse(statement.value)})"  # a generator still
        else:
            yield statement, "pass"
    elif isinstance(statement, ast.Continue):
        yield statement, "break"
    elif isinstance(statement, ast.Break):
        yield statement, "continue"
    elif isinstance(statement, ast.If):
        yield from ((statement.test, new) for new in ("True", "False"))
    elif isinstance(statement, ast.While) and not isinstance(statement.test, ast.Constant):
        yield statement.test, "False"
    for expression in _expressions(statement):
        yield from _within(expression)


def _is_false(node: ast.expr) -> bool:
    """Whether ``None`` instead would say the same to whoever asks."""
    return isinstance(node, ast.Constant) and not node.value


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """The expressions of a statement's own, without annotations and decorators."""
    for name, value in ast.iter_fields(statement):
        if name in ("annotation", "decorator_list", "returns", "bases"):
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.expr):
                yield one
            elif isinstance(one, ast.arguments):
                yield from (default for default in (*one.defaults, *one.kw_defaults) if default is not None)
            elif isinstance(one, ast.withitem):
                yield one.context_expr


def _within(node: ast.expr) -> Iterator[tuple[ast.expr, str]]:
    """The changes of an expression and of what it is made of."""
    if isinstance(node, ast.JoinedStr):
        return
    yield from ((node, new) for new in _of_expression(node))
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        for generator in node.generators:
            yield from ((test, "True") for test in generator.ifs)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from _within(child)
        elif isinstance(child, ast.comprehension):
            for part in (child.iter, *child.ifs):
                yield from _within(part)
        elif isinstance(child, ast.keyword):
            yield from _within(child.value)


def _of_expression(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in TURNED:
        turned = ast.Compare(node.left, [TURNED[type(node.ops[0])]()], node.comparators)
        yield f"({ast.unparse(turned)})"
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"({ast.unparse(ast.BoolOp(other, node.values))})"
        for number in range(len(node.values)):
            left = [value for at, value in enumerate(node.values) if at != number]
            yield f"({ast.unparse(left[0] if len(left) == 1 else ast.BoolOp(node.op, left))})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.IfExp):
        yield f"({ast.unparse(node.body)})"
        yield f"({ast.unparse(node.orelse)})"
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPPED:
        yield f"({ast.unparse(ast.BinOp(node.left, SWAPPED[type(node.op)](), node.right))})"
    elif isinstance(node, ast.Constant):
        yield from _of_constant(node.value)


def _of_constant(value: object) -> Iterator[str]:
    if isinstance(value, bool):
        yield str(not value)
    elif isinstance(value, (int, float)):
        yield str(value + 1)
    elif isinstance(value, str) and " " not in value:
        yield repr("XX" + value)
