"""When is a test true?  The worlds of both answers."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from dlcheck.facts import forms
from dlcheck.model import library
from dlcheck.model.scopes import dotted, last_name
from dlcheck.model.values import (
    Batch,
    Bound,
    ClassRef,
    Const,
    External,
    Func,
    Generated,
    Instance,
    Iterating,
    LambdaFunc,
    LoaderRef,
    Made,
    Managed,
    Many,
    Mapping,
    ModuleRef,
    Moved,
    Pinned,
    Point,
    Unknown,
    Value,
)
from dlcheck.model.worlds import ANY, World

if TYPE_CHECKING:
    from dlcheck.facts.forms import Expr
    from dlcheck.model.evaluate import Evaluator

Truths = list[tuple[bool, World]]

# ``get_worker_info()`` is something in a worker, and None elsewhere.
WORKER_INFO = "torch.utils.data.get_worker_info"
IN_WORKER = ("symbol", "in worker")

_OBJECTS = (
    Func, LambdaFunc, ClassRef, Bound, Instance, ModuleRef, LoaderRef, Managed, Generated, Iterating, Batch, Pinned,
    Moved, External,
)  # fmt: skip

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "is": lambda left, right: left is right or (isinstance(left, bool) or left is None) and left == right,
    "is not": lambda left, right: left is not right,
    "in": lambda left, right: left in right,
    "not in": lambda left, right: left not in right,
}
_FLIPPED = {"!=": "==", "is not": "is", "not in": "in", "<=": ">", "<": ">="}


def truth(ev: Evaluator, expr: Expr, point: Point) -> Truths:
    """Both answers to a test, or the one possible, each with its worlds."""
    if isinstance(expr, forms.Unary) and expr.op == "not":
        return [(not answer, world) for answer, world in truth(ev, expr.value, point)]
    if isinstance(expr, forms.Bool):
        return _both(ev, expr, point)
    if isinstance(expr, forms.Compare):
        return _comparison(ev, expr, point)
    if isinstance(expr, forms.Name) and expr.id == "TYPE_CHECKING" or last_name(expr) == "TYPE_CHECKING":
        return [(True, ANY)]
    where = (point.module.name, expr.at, point.frame)
    if isinstance(expr, forms.Call) and dotted(expr.func) in ("isinstance", "hasattr", "callable", "issubclass"):
        return _isinstance(ev, expr, point) or _open(("truth", where))
    out: Truths = []
    for value, world in ev.eval(expr, point):
        for answer, other in truth_of(ev, value, where):
            both = world.merge(other)
            if both is not None:
                out.append((answer, both))
    return _distinct(out) or _open(("truth", where))


def always(ev: Evaluator, expr: Expr, point: Point) -> bool:
    """Whether a test is a constant truth, as in ``while True``."""
    return isinstance(expr, forms.Const) and bool(expr.value)


def truth_of(ev: Evaluator, value: Value, where: Hashable) -> Truths:
    """Whether a value is true; ``where`` names the test if nothing else does."""
    if isinstance(value, Const):
        try:
            answer = bool(value.value)
        except Exception:  # noqa: BLE001 -- a constant has no odd __bool__, but let none escape
            return _open(("truth", where))
        return [(answer, ANY)]
    if isinstance(value, Made):
        return _made_truth(value, where)
    if isinstance(value, Unknown):
        return _open(("truth", value.token if value.token is not None else where))
    if isinstance(value, Many):
        return [(True, ANY)] if value.items else _open(("truth", where)) if value.open else [(False, ANY)]
    if isinstance(value, Mapping):
        return [(True, ANY)] if value.entries else _open(("truth", where)) if value.open else [(False, ANY)]
    if is_object(value):
        return [(True, ANY)]
    return _open(("truth", value.path if isinstance(value, External) else where))


def is_object(value: Value) -> bool:
    """Whether a value is certainly neither None, a number nor a string."""
    if isinstance(value, Made):
        name = value.path.rpartition(".")[2]
        is_class = name[:1].isupper() and not name.isupper()
        return is_class or value.path in ("torch.device", "torch.utils.data.random_split")
    if isinstance(value, External):
        return _is_certain(value.path)
    return isinstance(value, (*_OBJECTS, Many, Mapping))


def _is_certain(path: str) -> bool:
    """Whether a library's name is a module, class or function: a constant, or a name nobody knows, may be false."""
    root, _, name = path.rpartition(".")
    if "()" in path or name.isupper():
        return False
    if root == "builtins":
        return hasattr(builtins, name)
    return path.partition(".")[0] in ("torch", "numpy", "torchvision", "os", "math")


def _made_truth(value: Made, where: Hashable) -> Truths:
    if value.path == WORKER_INFO:
        return _open(IN_WORKER)
    symbol = library.SYMBOLS.get(value.path)
    if symbol:
        return _open(("symbol", symbol))
    if _is_positive(value) or value.path == "torch.cuda.device_count().positive":
        return [(True, ANY)]
    if value.path == "torch.cuda.device_count":
        return _open(("symbol", "cuda"))
    if is_object(value):
        return [(True, ANY)]
    if _is_predicate(value):
        return _open(("truth", value.path))
    return _open(("truth", value.key if value.key is not None else where))


def _is_predicate(value: Made) -> bool:
    """``is_distributed()`` of a library, which answers the same wherever it is asked."""
    asked = value.args is not None and not (value.args.positional or value.args.keywords or value.args.spreads)
    return asked and "()" not in value.path and value.path.rpartition(".")[2].startswith(("is_", "has_", "use_"))


def _both(ev: Evaluator, expr: forms.Bool, point: Point) -> Truths:
    stops_at = expr.op == "or"
    out: Truths = []
    for left, world in truth(ev, expr.left, point):
        if left == stops_at:
            out.append((left, world))
            continue
        for right, other in truth(ev, expr.right, point):
            both = world.merge(other)
            if both is not None:
                out.append((right, both))
    return _distinct(out)


def _comparison(ev: Evaluator, expr: forms.Compare, point: Point) -> Truths:
    if len(expr.ops) != 1:
        return _open(("truth", point.module.name, expr.at, point.frame))
    if isinstance(expr.left, forms.Name) and expr.left.id == "__name__":
        return [(expr.ops[0] == "==", ANY)]
    out: Truths = []
    rights = ev.eval(expr.rights[0], point)
    for left, world in ev.eval(expr.left, point):
        for right, other in rights:
            both = world.merge(other)
            if both is None:
                continue
            for answer, third in compare(ev, expr.ops[0], left, right, point, expr.at):
                joint = both.merge(third)
                if joint is not None:
                    out.append((answer, joint))
    return _distinct(out) or _open(("truth", point.module.name, expr.at, point.frame))


def compare(ev: Evaluator, op: str, left: Value, right: Value, point: Point, at: int) -> Truths:
    """The answers to ``left op right``."""
    if isinstance(left, Const):
        other = _constant(ev, right) if op in ("in", "not in") else right.value if isinstance(right, Const) else ...
        if other is not ...:
            try:
                answer = _COMPARE[op](left.value, other)
            except (TypeError, KeyError):
                return _open(("cmp", point.module.name, at, point.frame))
            return [(answer, ANY)]
    if op in ("is", "is not", "==", "!="):
        if isinstance(left, Made) and left.path == WORKER_INFO and isinstance(right, Const) and right.value is None:
            return [(answer is (op in ("is not", "!=")), world) for answer, world in _open(IN_WORKER)]
        none = isinstance(right, Const) and right.value is None
        if none and is_object(left) or isinstance(left, Const) and left.value is None and is_object(right):
            return [(op in ("is not", "!="), ANY)]
    return _open_comparison(op, left, right, point, at)


def _open_comparison(op: str, left: Value, right: Value, point: Point, at: int) -> Truths:
    """Nobody knows; but the same question about the same unknown gets the same answer."""
    token = left.token if isinstance(left, Unknown) else left.key if isinstance(left, Made) else None
    if isinstance(left, External):
        token = left.path
    if isinstance(left, Made) and left.path == "torch.cuda.device_count" and isinstance(right, Const):
        if (op, right.value) in ((">", 0), (">=", 1), ("!=", 0)):
            return _open(("symbol", "cuda"))
        token = "device count"
    if _is_positive(left) and isinstance(right, Const) and op in _COMPARE:
        bound = right.value
        # Beyond one it is not known how many there are.
        if isinstance(bound, (int, float)) and (bound <= 0 or bound == 1 and op in (">=", "<")):
            return [(_COMPARE[op](1, bound), ANY)]
    if token is None or not isinstance(right, Const):
        return _open(("cmp", point.module.name, at, point.frame))
    if op in _FLIPPED:
        return [(not answer, world) for answer, world in _open(("cmp", token, _FLIPPED[op], repr(right.value)))]
    return _open(("cmp", token, op, repr(right.value)))


_NUMERIC = frozenset({"==", ">", ">="})  # the others are asked as the opposite of these


def is_possible(world: World) -> bool:
    """Whether some number passes all that a world says of one: none is 0 (``gpus == 0``) and above 1 (``gpus > 1``)."""
    asked: dict[Hashable, list[tuple[str, float, Hashable]]] = {}
    for key, answer in world.choices.items():
        if isinstance(key, tuple) and len(key) == 4 and key[0] == "cmp" and key[2] in _NUMERIC:
            try:
                asked.setdefault(key[1], []).append((key[2], float(key[3]), answer))
            except ValueError:
                continue
    return all(len(tests) < 2 or _some_number_passes(tests) for tests in asked.values())


def _some_number_passes(tests: list[tuple[str, float, Hashable]]) -> bool:
    candidates = {bound + step for _, bound, _ in tests for step in (-1, 0, 0.5, 1)}
    return any(all(_COMPARE[op](number, bound) is answer for op, bound, answer in tests) for number in candidates)


def _is_positive(value: Value) -> bool:
    """Whether it is a number of CPUs, or another that is certainly above zero."""
    return isinstance(value, Made) and (value.path in library.CPU_COUNTS or value.path == "positive")


def _constant(ev: Evaluator, value: Value) -> object:
    """A container of constants as a Python tuple, or ``...``."""
    if isinstance(value, Const):
        return value.value
    if isinstance(value, Many) and not value.open:
        items = []
        for thunk in value.items:
            alts = ev.force(thunk)
            if len(alts) != 1 or not isinstance(alts[0].value, Const):
                return ...
            items.append(alts[0].value.value)
        return tuple(items)
    if isinstance(value, Mapping) and not value.open:
        return tuple(name for name, _ in value.entries)
    return ...


def _isinstance(ev: Evaluator, call: forms.Call, point: Point) -> Truths:
    """``isinstance(x, C)`` where ``x`` and ``C`` are known; the same question about the same unknown is one choice."""
    if dotted(call.func) != "isinstance" or len(call.args) != 2:
        return []
    out: Truths = []
    kinds = list(ev.values(call.args[1].value, point))
    for value, world in ev.eval(call.args[0].value, point):
        answers = {_is_a(ev, value, kind) for kind in kinds}
        if len(answers) == 1 and None not in answers:
            out.append((bool(answers.pop()), world))
            continue
        where = (point.module.name, call.at)
        token = value.token if isinstance(value, Unknown) else getattr(value, "key", None)
        if token is None or len(kinds) != 1:
            return []
        name: Hashable = kinds[0].path if isinstance(kinds[0], External) else getattr(kinds[0], "scope", where)
        out += [(answer, both) for answer, other in _open(("isinstance", token, name)) if (both := world.merge(other))]
    return _distinct(out)


_BUILTIN_KINDS: dict[str, type] = {
    "builtins.int": int, "builtins.float": float, "builtins.str": str, "builtins.bool": bool,
    "builtins.dict": dict, "builtins.list": list, "builtins.tuple": tuple, "builtins.set": set,
}  # fmt: skip


def _is_a(ev: Evaluator, value: Value, kind: Value) -> bool | None:
    """Whether a value is of a kind; None where that is unknown."""
    path = kind.path if isinstance(kind, External) else ""
    builtin = _BUILTIN_KINDS.get(path)
    if isinstance(value, Const):
        return isinstance(value.value, builtin) if builtin is not None else None if path else False
    if isinstance(value, Mapping):
        return builtin is dict if builtin is not None else None
    if isinstance(value, Many):
        return builtin is not None and builtin.__name__ == value.kind if builtin is not None else None
    if isinstance(value, Instance):
        if builtin is not None:
            return False if not ev.project.external_bases(value.cls) else None
        if isinstance(kind, ClassRef):
            return kind.scope in ev.project.lineage(value.cls)
        return _descends(ev.project.external_bases(value.cls), path) if path else None
    return None


def _descends(bases: list[str], path: str) -> bool | None:
    """Whether one of some library classes is, or derives from, another."""
    if path in bases or path == library.DATASET and library.ITERABLE_DATASET in bases:
        return True
    known = (library.DATASET, library.ITERABLE_DATASET, "typing.Generic", "torch.nn.Module", "abc.ABC")
    return False if all(base in known for base in bases) else None


def _open(key: Hashable) -> Truths:
    return [(True, World({key: True})), (False, World({key: False}))]


def _distinct(truths: Truths) -> Truths:
    out = list(dict.fromkeys(truths))
    for answer in (True, False):
        same = [world for found, world in out if found is answer]
        if len(same) == len(out) and len(out) > 1:
            common = set(same[0].choices.items())
            for world in same[1:]:
                common &= world.choices.items()
            return [(answer, World(dict(common)))]
    return out[:12]
