"""How sample code looks rows up: in a pandas table, in a column of a Hugging Face dataset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model.data.kinds import COLUMN, FRAME, HF_COLUMN, Kinds
from dlcheck.model.data.sample_code import SampleCode
from dlcheck.model.flow import loops_around
from dlcheck.model.scopes import Inner, Link, Module, Scope, Site, descend, expressions
from dlcheck.model.values import External, Made, Point

if TYPE_CHECKING:
    from dlcheck.model.project import Project


class Lookup(NamedTuple):
    """A row of a pandas table looked up for a sample: ``scan`` where that goes through the whole table.

    ``kind`` is what is known of the table: FRAME, COLUMN, or nothing.
    """

    module: Module
    at: int
    link: Link
    scan: bool
    kind: str = ""


def pandas_lookups(code: SampleCode) -> Iterator[Lookup]:
    """Where sample code takes a row, or searches for rows, of a pandas table."""
    for place in code.places():
        expr, link = place.expr, place.link
        found = False
        if isinstance(expr, forms.Sub) and code.code.varies(expr.index, place.frame):
            searches = isinstance(expr.index, (forms.Compare, forms.Binary)) and _compares(expr.index)
            if isinstance(expr.value, forms.Attr) and expr.value.name in ("iloc", "loc"):
                found = _is_pandas(code, expr.value, place.point)
            elif searches:
                found = code.kinds.of(expr.value, place.point) in (FRAME, COLUMN)
            if found:
                held = expr.value.value if isinstance(expr.value, forms.Attr) and not searches else expr.value
                yield Lookup(link.scope.module, expr.at, link, searches, code.kinds.of(held, place.point))
        elif isinstance(expr, forms.Call) and _searches(code, expr, place.point):
            yield Lookup(link.scope.module, expr.at, link, True)


def _searches(code: SampleCode, call: forms.Call, point: Point) -> bool:
    func = call.func
    return isinstance(func, forms.Attr) and func.name in _SEARCHES and code.kinds.of(func.value, point) == FRAME


_SEARCHES = frozenset({"query", "iterrows", "itertuples", "to_dict"})


def _compares(expr: forms.Expr) -> bool:
    return any(
        isinstance(node, forms.Compare) and node.ops[0] in ("==", ">=", "<=", "<", ">") for node in descend(expr)
    )


def _is_pandas(code: SampleCode, expr: forms.Expr, point: Point) -> bool:
    """Whether ``x.iloc`` is of pandas: nothing else has it; ``x.loc`` has other owners."""
    assert isinstance(expr, forms.Attr)
    if expr.name == "iloc":
        return not _is_other_library(code, expr.value, point)
    return code.kinds.of(expr.value, point) in (FRAME, COLUMN)


def _is_other_library(code: SampleCode, expr: forms.Expr, point: Point) -> bool:
    values = code.project.evaluator.values(expr, point)
    paths = [value.path for value in values if isinstance(value, (External, Made))]
    return any(path.partition(".")[0] not in ("pandas", "geopandas", "builtins") for path in paths)


class ColumnItem(NamedTuple):
    """``dataset[column][row]`` of a Hugging Face dataset, where it runs again and again."""

    module: Module
    at: int
    link: Link
    column: str
    row: str
    table: str


def column_items(project: Project) -> Iterator[ColumnItem]:
    """Where a column of a Hugging Face dataset is taken for one of its rows, in ``__getitem__`` or a loop."""
    kinds = Kinds(project.evaluator)
    for module in project.named_modules:
        for link in module.links.values():
            if isinstance(link.stmt, (forms.Function, forms.Class)):
                continue
            for root in expressions(link.stmt):
                for expr in descend(root):
                    if isinstance(expr, forms.Sub) and isinstance(expr.value, forms.Sub) and _may_be_row(expr.index):
                        inner = _inner_of(module, link, expr)
                        if not _repeated(link, inner):
                            continue
                        project.evaluator.fresh()
                        if kinds.of(expr.value, project.point(Site(expr, link, inner))) == HF_COLUMN:
                            column, row = module.line(expr.value.index.at), module.line(expr.index.at)
                            yield ColumnItem(module, expr.at, link, column, row, module.line(expr.value.value.at))


def _may_be_row(index: forms.Expr) -> bool:
    if isinstance(index, forms.Slice):
        return index.lower is not None or index.upper is not None
    return not isinstance(index, forms.Const)


def _repeated(link: Link, inner: Inner | None) -> bool:
    """Whether a statement runs for each sample: in a sample method, a loop or a comprehension."""
    scope: Scope | None = link.scope
    while scope is not None and scope.kind == "function":
        if scope.name in ("__getitem__", "__getitems__"):
            return True
        scope = scope.parent
    return inner is not None and isinstance(inner.form, forms.Comp) or next(loops_around(link), None) is not None


def _inner_of(module: Module, link: Link, wanted: forms.Expr) -> Inner | None:
    """The comprehension or lambda in which an expression of a statement stands."""
    best: Inner | None = None
    for inner in module.inners.values():
        form = inner.form
        parts = [form.value] if isinstance(form, forms.Comp) else [form.body]
        holds = any(expr is wanted for part in parts for expr in descend(part))
        if holds and (best is None or _is_within(inner, best)):
            best = inner
    return best


def _is_within(inner: Inner, outer: Inner) -> bool:
    here: Inner | None = inner
    while here is not None:
        if here is outer:
            return True
        here = here.parent
    return False
