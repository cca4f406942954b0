"""The small forms that facts are made of: what a module says, without how it is laid out.

They mirror Python's grammar at the grain that the model needs.  Each form is a NamedTuple of
plain data; ``at`` numbers the node within its module and finds its range in ``ModuleFacts.spans``.
What no rule asks about (slices' steps, formatting of f-strings, ...) becomes ``Other``, whose
children are kept so that nothing inside is lost.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, Union

if TYPE_CHECKING:
    # To type checkers a form is a class of its own name: they compare named tuples item by item,
    # and with items as recursive as these a check of the package takes many minutes.
    from collections.abc import Callable, Iterator
    from typing import Any

    from typing_extensions import dataclass_transform

    @dataclass_transform(frozen_default=True)
    class Form:
        def __iter__(self) -> Iterator[Any]: ...

else:
    Form = NamedTuple


class Const(Form):
    """A literal: str, bytes, int, float, complex, bool, None or ``...``."""

    value: object
    at: int


class Name(Form):
    id: str
    at: int


class Attr(Form):
    value: Expr
    name: str
    at: int
    name_at: int


class Sub(Form):
    value: Expr
    index: Expr  # several indices are a Sequence of kind "tuple"
    at: int


class Slice(Form):
    lower: Expr | None
    upper: Expr | None
    step: Expr | None
    at: int


class Arg(Form):
    """An argument of a call: ``star`` is "", "*" or "**"."""

    name: str | None
    star: str
    value: Expr
    at: int


class Call(Form):
    func: Expr
    args: tuple[Arg, ...]
    at: int


class Sequence(Form):
    kind: str  # tuple | list | set
    items: tuple[Expr, ...]
    at: int


class Entry(Form):
    """``key: value`` of a dict literal; without a key, ``**value``, of which a number stands for entries left out."""

    key: Expr | None
    value: Expr
    at: int


class Dict(Form):
    entries: tuple[Entry, ...]
    at: int


class Star(Form):
    """``*value`` in a sequence; a constant number, which nothing can unpack, stands for items that are left out."""

    value: Expr
    at: int


class Binary(Form):
    op: str
    left: Expr
    right: Expr
    at: int


class Unary(Form):
    op: str  # - + ~ not
    value: Expr
    at: int


class Bool(Form):
    op: str  # and | or
    left: Expr
    right: Expr
    at: int


class Compare(Form):
    left: Expr
    ops: tuple[str, ...]
    rights: tuple[Expr, ...]
    at: int


class IfExp(Form):
    test: Expr
    body: Expr
    orelse: Expr
    at: int


class Clause(Form):
    """``for target in iter if ...`` of a comprehension."""

    target: Expr
    iter: Expr
    ifs: tuple[Expr, ...]
    at: int


class Comp(Form):
    kind: str  # list | set | dict | generator
    key: Expr | None  # of a dict comprehension
    value: Expr
    clauses: tuple[Clause, ...]
    at: int


class Lambda(Form):
    params: tuple[Param, ...]
    body: Expr
    at: int


class Walrus(Form):
    target: Expr
    value: Expr
    at: int


class Await(Form):
    value: Expr
    at: int


class Yield(Form):
    value: Expr | None
    delegates: bool  # yield from
    at: int


class FString(Form):
    parts: tuple[Expr, ...]
    at: int


class Other(Form):
    """An expression with no meaning to the model; ``parts`` are what it contains."""

    parts: tuple[Expr, ...]
    at: int


Expr: TypeAlias = Union[
    Const, Name, Attr, Sub, Slice, Call, Sequence, Dict, Star, Binary, Unary, Bool, Compare, IfExp, Comp, Lambda,
    Walrus, Await, Yield, FString, Other,
]  # fmt: skip


class Param(Form):
    name: str
    kind: str  # positional | normal | keyword | * | **
    default: Expr | None
    annotation: Expr | None
    at: int


Block: TypeAlias = "tuple[Stmt, ...]"


class Assign(Form):
    targets: tuple[Expr, ...]
    value: Expr
    at: int


class Declare(Form):
    """``target: annotation = value``; the value may be absent."""

    target: Expr
    annotation: Expr
    value: Expr | None
    at: int


class AugAssign(Form):
    target: Expr
    op: str  # without the equals sign
    value: Expr
    at: int


class Do(Form):
    """An expression as a statement."""

    value: Expr
    at: int


class For(Form):
    target: Expr
    iter: Expr
    body: Block
    orelse: Block
    at: int
    head: int


class While(Form):
    test: Expr
    body: Block
    orelse: Block
    at: int
    head: int


class If(Form):
    test: Expr
    body: Block
    orelse: Block
    at: int
    head: int


class WithItem(Form):
    value: Expr
    target: Expr | None
    at: int


class With(Form):
    items: tuple[WithItem, ...]
    body: Block
    at: int
    head: int


class Handler(Form):
    type: Expr | None
    name: str | None
    body: Block
    at: int


class Try(Form):
    body: Block
    handlers: tuple[Handler, ...]
    orelse: Block
    final: Block
    at: int
    head: int


class Case(Form):
    """A case of a match statement: the names that its pattern binds, its guard, its body."""

    names: tuple[str, ...]
    guard: Expr | None
    body: Block
    at: int


class Match(Form):
    subject: Expr
    cases: tuple[Case, ...]
    at: int
    head: int


class Return(Form):
    value: Expr | None
    at: int


class Raise(Form):
    value: Expr | None
    at: int


class Jump(Form):
    kind: str  # break | continue | pass
    at: int


class Scope(Form):
    """``global`` or ``nonlocal``."""

    kind: str
    names: tuple[str, ...]
    at: int


class Delete(Form):
    targets: tuple[Expr, ...]
    at: int


class Assert(Form):
    test: Expr
    at: int


class Alias(Form):
    """One name of an import: the dotted name imported and the name that it binds."""

    name: str
    bound: str
    at: int


class Import(Form):
    aliases: tuple[Alias, ...]
    at: int


class ImportFrom(Form):
    module: str  # "" in ``from . import x``
    level: int  # leading dots
    aliases: tuple[Alias, ...]  # empty for a star import
    at: int


class Function(Form):
    name: str
    params: tuple[Param, ...]
    body: Block
    decorators: tuple[Expr, ...]
    is_async: bool
    is_generator: bool
    at: int
    head: int
    name_at: int


class Class(Form):
    name: str
    bases: tuple[Arg, ...]
    body: Block
    decorators: tuple[Expr, ...]
    at: int
    head: int
    name_at: int


Stmt: TypeAlias = Union[
    Assign, Declare, AugAssign, Do, For, While, If, With, Try, Match, Return, Raise, Jump, Scope, Delete, Assert,
    Import, ImportFrom, Function, Class,
]  # fmt: skip


class ModuleFacts:
    """What one file says by itself.

    ``spans`` holds, for node ``n``, its start and end at ``2*n`` and ``2*n + 1``: character
    offsets in the decoded text.  ``head`` of a compound statement is the node that spans the
    statement's first line up to its colon.  Spans may be given as what finds them: it is called when
    somebody asks for one.
    """

    def __init__(self, body: Block, spans: tuple[int, ...] | Callable[[], tuple[int, ...]]) -> None:
        self.body = body
        self._given = spans

    @cached_property
    def spans(self) -> tuple[int, ...]:
        return self._given if isinstance(self._given, tuple) else self._given()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModuleFacts) and (self.body, self.spans) == (other.body, other.spans)

    __hash__ = None  # type: ignore[assignment]

    def span(self, at: int) -> tuple[int, int]:
        """Start and end offset of a node."""
        return self.spans[2 * at], self.spans[2 * at + 1]
