"""What is known on a path through a function, and what is noted on the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from dlcheck.facts import forms
from dlcheck.model.data import memory
from dlcheck.model.data.memory import NOTHING, SCALAR, Piece
from dlcheck.model.scopes import Link, Module, Scope, descend, dotted, expressions, last_name
from dlcheck.model.worlds import World


class Cause(NamedTuple):
    """Why a path is taken: something "failed", was "tested", or a loop was "skipped" or "finished".

    ``of_sample``: the test asks about the sample, not about a setting or the range of the index.
    """

    kind: str
    link: Link
    of_sample: bool = False


class State(NamedTuple):
    """What is known at a place of a path."""

    names: Mapping[str, Piece]
    kept: Mapping[tuple[Scope, str], Piece]  # attributes that the path has assigned
    world: World
    causes: tuple[Cause, ...] = ()

    def bind(self, name: str, piece: Piece) -> State:
        return self._replace(names={**self.names, name: piece})

    def because(self, cause: Cause) -> State:
        return self._replace(causes=(*self.causes, cause))


class Exit(NamedTuple):
    """The end of a path: what it returns, and where; without a place it fell off the end."""

    piece: Piece
    link: Link | None
    state: State

    @property
    def at(self) -> int | None:
        """The node of what is returned or yielded, else of the statement."""
        if self.link is None:
            return None
        stmt = self.link.stmt
        value = stmt.value if isinstance(stmt, (forms.Return, forms.Do)) else None
        return stmt.at if value is None else value.at


class Edit(NamedTuple):
    """Something written into memory that an object keeps.

    ``how``: "cumulative" (again and again, on what it left), "drawn" (each time elsewhere),
    "retained" (a decoded file, kept from then on) or "settled" (the same each time).
    """

    piece: Piece
    how: str
    module: Module
    at: int
    link: Link
    world: World
    root: str = ""  # the name through which it is written

    @property
    def asked_first(self) -> bool:
        """Whether a test around it asks if it was done before: a cache, or a conversion that is still due."""
        tests = (outer.stmt.test for outer in self.link.outer() if isinstance(outer.stmt, forms.If))
        return any(_asks_whether_done(test, self.root) for test in tests)


class Refusal(NamedTuple):
    """A reversed view that torch is given: where, by what, and where it was reversed."""

    call: str
    module: Module
    at: int
    link: Link
    turned: tuple[Module, int]
    world: World


Evaluated: TypeAlias = "list[tuple[Piece, State]]"

# -- tests


def _asks_whether_done(test: forms.Expr, root: str) -> bool:
    for expr in descend(test):
        if isinstance(expr, forms.Compare) and {"in", "not in"} & set(expr.ops):
            return True
        if (
            isinstance(expr, forms.Compare)
            and {"is", "is not"} & set(expr.ops)
            and not isinstance(expr.left, forms.Name)
        ):
            return True
        if isinstance(expr, forms.Call) and last_name(expr.func) in ("isinstance", "hasattr", "get"):
            return True
    return root == "self" and dotted(test) is not None


def root_name(expr: forms.Expr | forms.Stmt) -> str:
    """The name at the front of what is written."""
    here: object = expr.target if isinstance(expr, forms.AugAssign) else expr
    while isinstance(here, (forms.Sub, forms.Attr, forms.Call)):
        here = here.func if isinstance(here, forms.Call) else here.value
    return here.id if isinstance(here, forms.Name) else ""


def none_test(test: forms.Expr) -> tuple[str, bool]:
    """The name that a test asks of whether it is None, and the answer where it is."""
    if isinstance(test, forms.Compare) and len(test.ops) == 1 and isinstance(test.left, forms.Name):
        right = test.rights[0]
        if isinstance(right, forms.Const) and right.value is None:
            return test.left.id, test.ops[0] in ("is", "==")
    if isinstance(test, forms.Name):
        return test.id, False
    return "", False


def narrowed(test: forms.Expr, truth: bool, state: State) -> State:
    """What a test's answer says of the name that it asks about."""
    if any(isinstance(expr, forms.Attr) and expr.name in ("strides", "flags") for expr in descend(test)):
        # Who asks how an array lies in memory knows what to do.
        asked = {expr.id for expr in descend(test) if isinstance(expr, forms.Name)} & state.names.keys()
        straight = {known: state.names[known]._replace(turned=None) for known in asked}
        state = state._replace(names={**state.names, **straight})
    name, wanted = none_test(test)
    piece = state.names.get(name) if name else None
    if piece is not None and isinstance(test, forms.Compare):
        if truth == wanted:
            return state.bind(name, NOTHING)
        if not piece.kind:
            return state.bind(name, piece._replace(fresh=True))
    return state


_LOOKING = frozenset({"exists", "isfile", "is_file", "isdir", "getsize", "stat"})


def asks_about_sample(test: forms.Expr, state: State) -> bool:
    """Whether a test depends on what the sample is, and not only on settings or on the index."""
    for expr in descend(test):
        if isinstance(expr, forms.Name):
            piece = state.names.get(expr.id)
            if piece is not None and (piece.kind != SCALAR or piece.drawn):
                return True
        elif isinstance(expr, forms.Sub):
            if any(isinstance(inner, forms.Name) and inner.id in state.names for inner in descend(expr.index)):
                return True
        elif isinstance(expr, forms.Call) and last_name(expr.func) in _LOOKING:
            return True
    return False


def used_as_array(scope: Scope, name: str) -> bool:
    """Whether a function uses a name as only an array with dimensions can be used."""
    for link in _links(scope):
        for root in expressions(link.stmt):
            for expr in descend(root):
                if isinstance(expr, forms.Sub) and dotted(expr.value) == name:
                    return True
                if isinstance(expr, forms.Attr) and dotted(expr.value) == name and expr.name in memory.SOLID_METHODS:
                    return True
                given = [dotted(arg.value) for arg in expr.args] if isinstance(expr, forms.Call) else []
                if name in given and isinstance(expr, forms.Call) and last_name(expr.func) in memory.SOLID_USERS:
                    return True
    return False


def _links(scope: Scope) -> Iterator[Link]:
    todo = list(scope.body)
    while todo:
        link = todo.pop()
        yield link
        for block in link.blocks.values():
            todo += block
