"""Samples that are Python lists of numbers, and lists of arrays that are made into tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.data.kinds import ARRAY, ARRAYLIKE, ENCODING, NUMBER, Kinds, item_of, list_of
from dlcheck.model.data.reaching import Binding, deeper, reaching
from dlcheck.model.datasets import SAMPLE_METHODS
from dlcheck.model.flow import links_of, loops_around
from dlcheck.model.scopes import Link, Module, dotted
from dlcheck.model.values import Func, Made, Point
from dlcheck.model.workers import WorkerCall

if TYPE_CHECKING:
    from dlcheck.facts.forms import Expr
    from dlcheck.model.datasets import DatasetClass

SHORT = 4  # numbers that are as well a tensor each: x, y, width, height

TENSOR_MAKERS = frozenset(
    {"torch.tensor", "torch.as_tensor", "torch.Tensor", "torch.FloatTensor", "torch.LongTensor", "torch.DoubleTensor",
     "torch.IntTensor", "torch.ByteTensor", "torch.BoolTensor", "torch.HalfTensor", "torch.ShortTensor"}
)  # fmt: skip


class ListPart(NamedTuple):
    """A part of a sample that is a list of numbers: what it is, and where it stands."""

    module: Module
    at: int
    link: Link
    text: str
    tokens: bool


def list_parts(dataset: DatasetClass) -> Iterator[ListPart]:
    """The parts of a dataset's samples that are long lists of numbers."""
    project = dataset.project
    kinds = Kinds(project.evaluator)
    for name in SAMPLE_METHODS:
        method = project.method(dataset.cls, name)
        if method is None or name == "__getitems__":
            continue
        frame = project.evaluator.frame(method, self_=dataset.instance)
        given = [(link.stmt.value, link) for link in method.returns if isinstance(link.stmt, forms.Return)]
        if method.function.is_generator:
            yielded = [(site.expr, site.link) for site in method.yields if isinstance(site.expr, forms.Yield)]
            given = [(expr.value, link) for expr, link in yielded if not expr.delegates]
        for value, link in given:
            if value is not None:
                for part, point in _parts(kinds, value, Point(frame, link), 0):
                    kind = kinds.of(part, point)
                    numbers = kind == ENCODING or item_of(kind) and _innermost(kind) == NUMBER
                    if numbers and not _is_short(part, point, 0):
                        module = point.module
                        yield ListPart(module, part.at, point.link, module.line(part.at), kind == ENCODING)


def _innermost(kind: str) -> str:
    while kind.startswith("list["):
        kind = item_of(kind)
    return kind


def _parts(kinds: Kinds, expr: Expr, point: Point, depth: int) -> Iterator[tuple[Expr, Point]]:
    """The entries of a sample: of a tuple, a dict, or the sample itself."""
    if depth > 6:
        return
    if isinstance(expr, forms.Sequence) and (expr.kind == "tuple" or depth == 0):
        if kinds.of(expr, point) == list_of(NUMBER):
            if expr.kind == "list":
                yield expr, point
            return
        for item in expr.items:
            yield from _parts(kinds, item, point, depth + 1)
    elif isinstance(expr, forms.Dict):
        for entry in expr.entries:
            yield from _parts(kinds, entry.value, point, depth + 1)
    elif isinstance(expr, forms.IfExp):
        yield from _parts(kinds, expr.body, point, depth + 1)
        yield from _parts(kinds, expr.orelse, point, depth + 1)
    elif isinstance(expr, forms.Name):
        yield from _named(kinds, expr, point, depth)
    elif isinstance(expr, forms.Call):
        yield from _called(kinds, expr, point, depth)
    else:
        yield expr, point


def _named(kinds: Kinds, expr: forms.Name, point: Point, depth: int) -> Iterator[tuple[Expr, Point]]:
    bindings, _ = reaching(expr.id, point.link)
    built = [
        binding for binding in bindings if binding.how == "set" and isinstance(binding.value, (forms.Dict, forms.Call))
    ]
    structures = [
        binding
        for binding in built
        if not isinstance(binding.value, forms.Call) or dotted(binding.value.func) == "dict"
    ]
    if not structures:
        tuples = [b for b in bindings if isinstance(b.value, forms.Sequence) and b.value.kind == "tuple"]
        if len(tuples) == len(bindings) == 1 and tuples[0].value is not None:
            yield from _parts(kinds, tuples[0].value, Point(point.frame, tuples[0].link), depth + 1)
        else:
            yield expr, point
        return
    below = deeper(depth, len(structures))
    replaced = set()
    for link in links_of(point.frame.scope):  # sample["ids"] = [...]
        stmt = link.stmt
        if isinstance(stmt, forms.Assign):
            for target in stmt.targets:
                if isinstance(target, forms.Sub) and dotted(target.value) == expr.id:
                    if isinstance(target.index, forms.Const):
                        replaced.add(target.index.value)
                    yield from _parts(kinds, stmt.value, Point(point.frame, link), below)
    for binding in structures:
        assert binding.value is not None
        there = Point(point.frame, binding.link)
        if isinstance(binding.value, forms.Dict):
            for entry in binding.value.entries:
                if not (isinstance(entry.key, forms.Const) and entry.key.value in replaced):
                    yield from _parts(kinds, entry.value, there, below)
        else:
            yield from _parts(kinds, binding.value, there, below)


def _called(kinds: Kinds, call: forms.Call, point: Point, depth: int) -> Iterator[tuple[Expr, Point]]:
    if dotted(call.func) == "dict":
        for arg in call.args:
            if arg.name is not None:
                yield from _parts(kinds, arg.value, point, depth + 1)
        return
    kinds.ev.fresh()
    values = list(kinds.ev.values(call.func, point))
    if len(values) == 1 and isinstance(values[0], Func) and not values[0].scope.function.is_generator:
        func = values[0]
        frame = kinds.ev.frame(func.scope, calling.arguments(call, point), point, func.self_, func.closure)
        for link in func.scope.returns:
            if isinstance(link.stmt, forms.Return) and link.stmt.value is not None:
                yield from _parts(kinds, link.stmt.value, Point(frame, link), depth + 1)
        return
    yield call, point


def _is_short(expr: Expr, point: Point, depth: int) -> bool:
    """Whether a list is written out with no more than a few numbers."""
    if isinstance(expr, forms.Sequence):
        return len(expr.items) <= SHORT
    if isinstance(expr, forms.Binary) and expr.op == "*":
        return False
    if isinstance(expr, forms.Sub) and isinstance(expr.index, forms.Slice):
        upper = expr.index.upper
        return isinstance(upper, forms.Const) and isinstance(upper.value, int) and 0 <= upper.value <= SHORT
    if isinstance(expr, forms.Name) and depth < 4:
        bindings, _ = reaching(expr.id, point.link)
        return bool(bindings) and all(_adds_little(binding, point, depth) for binding in bindings)
    return False


def _adds_little(binding: Binding, point: Point, depth: int) -> bool:
    if binding.how == "append":
        return next(loops_around(binding.link), None) is None
    return binding.value is not None and _is_short(binding.value, Point(point.frame, binding.link), depth + 1)


def is_list_of_arrays(kinds: Kinds, call: WorkerCall) -> bool:
    """Whether a call makes a tensor of a list of ndarrays, item by item."""
    if call.path not in TENSOR_MAKERS or not call.call.args or call.call.args[0].star:
        return False
    kind = kinds.of(call.call.args[0].value, call.point)
    # Tensors of several numbers in a list are an error here: what may be either is an array.
    return kind in (list_of(ARRAY), list_of(ARRAYLIKE), list_of(list_of(ARRAY)), list_of(list_of(ARRAYLIKE)))


# -- datasets of Hugging Face, given to a loader as they are


def unformatted_tokens(kinds: Kinds, made: Made) -> bool:
    """Whether a Hugging Face dataset was tokenized by ``map`` and not told to give tensors."""
    tokenized = False
    here: object = made
    while isinstance(here, Made):
        method = here.path.rpartition(".")[2]
        if method in ("with_format", "set_format", "with_transform", "set_transform"):
            return False
        if method == "map" and here.args is not None and here.args.positional:
            tokenized = tokenized or any(
                isinstance(alt.value, Func) and _returns_encoding(kinds, alt.value)
                for alt in kinds.ev.force(here.args.positional[0][0])
            )
        here = here.base
    return tokenized


def _returns_encoding(kinds: Kinds, func: Func) -> bool:
    frame = kinds.ev.frame(func.scope, None, None, func.self_, func.closure)
    return any(
        isinstance(link.stmt, forms.Return)
        and link.stmt.value is not None
        and kinds.of(link.stmt.value, Point(frame, link)) == ENCODING
        for link in func.scope.returns
    )
