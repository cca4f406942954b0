"""Iterable datasets that can be iterated only once: what they iterate is used up afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling, library
from dlcheck.model.attributes import frame_of_method
from dlcheck.model.definitions import definition
from dlcheck.model.flow import links_in, links_of
from dlcheck.model.scopes import Link, Module, Scope, Store, descend, dotted, last_name, loops_for_ever
from dlcheck.model.values import External, Func, Point

if TYPE_CHECKING:
    from dlcheck.model.datasets import DatasetClass
    from dlcheck.model.evaluate import Evaluator

# What gives an iterator, which is empty once it was gone through.
_ITERATORS = frozenset(
    {"builtins.iter", "builtins.map", "builtins.filter", "builtins.zip", "builtins.enumerate", "builtins.reversed",
     "csv.reader", "csv.DictReader", "os.scandir", "os.walk", "glob.iglob", "re.finditer", "itertools.chain",
     "itertools.islice", "itertools.zip_longest", "itertools.starmap", "itertools.takewhile", "itertools.dropwhile",
     "itertools.chain.from_iterable", "itertools.product", "itertools.permutations", "itertools.combinations",
     "pathlib.Path().glob", "pathlib.Path().rglob", "pathlib.Path().iterdir", "fileinput.input"}
)  # fmt: skip
_FILES = frozenset({"builtins.open", "io.open", "gzip.open", "bz2.open", "lzma.open", "codecs.open"})
_WRAPPERS = frozenset({"iter", "enumerate", "tqdm", "map", "filter", "zip", "islice"})
_RESETS = ("reset", "rewind", "restart", "set_epoch", "__setstate__", "__getstate__")


class OneShot(NamedTuple):
    """What makes a dataset one pass: the statement, and the attribute that is used up ("" for the object itself)."""

    attribute: str
    text: str
    module: Module
    at: int
    link: Link
    iterated: Link  # where ``__iter__`` goes through it


def one_shot(dataset: DatasetClass) -> OneShot | None:
    """Why a dataset can be iterated only once; None where it can be iterated again, or nobody can tell."""
    method = dataset.project.method(dataset.cls, "__iter__")
    if method is None or not method.function.params:
        return None
    if any(name.startswith(_RESETS) for cls in dataset.project.lineage(dataset.cls) for name in cls.functions):
        return None
    own = method.function.params[0].name
    for link, expr in _iterated(method):
        name = dotted(_named(dataset, expr, link))
        if name == own and isinstance(link.stmt, forms.Return):
            return _own_iterator(dataset, method, link)
        if name is not None and name.startswith(f"{own}.") and name.count(".") == 1:
            found = _used_up(dataset, name.partition(".")[2], link)
            if found is not None:
                return found
    return None


def _iterated(method: Scope) -> Iterator[tuple[Link, forms.Expr]]:
    """What ``__iter__`` returns, yields from and loops over."""
    for link in method.returns:
        if isinstance(link.stmt, forms.Return) and link.stmt.value is not None:
            yield link, _inside(link.stmt.value)
    for site in method.yields:
        if isinstance(site.expr, forms.Yield) and site.expr.delegates and site.expr.value is not None:
            yield site.link, _inside(site.expr.value)
    for link in links_of(method):
        if isinstance(link.stmt, forms.For):
            yield link, _inside(link.stmt.iter)


def _inside(expr: forms.Expr) -> forms.Expr:
    """``x`` of ``iter(x)``, ``enumerate(x)``, ``map(f, x)``."""
    while isinstance(expr, forms.Call) and expr.args and last_name(expr.func) in _WRAPPERS:
        expr = expr.args[-1 if last_name(expr.func) in ("map", "filter") else 0].value
    return expr


def _named(dataset: DatasetClass, expr: forms.Expr, link: Link) -> forms.Expr:
    """``self.rows`` of ``rows = self.rows``."""
    found = definition(dataset.project, expr, link) if isinstance(expr, forms.Name) else None
    return _inside(found.expr) if found is not None and found.link.scope is link.scope else expr


# -- an attribute that is used up


def _used_up(dataset: DatasetClass, name: str, iterated: Link) -> OneShot | None:
    project = dataset.project
    stores = project.stores(dataset.cls, name)
    if not stores or any(store.link.scope.name not in ("__init__", "__post_init__") for store in stores):
        return None
    found: list[Store] = []
    for store in stores:
        frame = frame_of_method(project.evaluator, dataset.instance, store.link.scope)
        project.evaluator.fresh()
        if store.value is None or not _is_iterator(project.evaluator, store.value, Point(frame, store.link), 0):
            return None
        found.append(store)
    last = found[-1]
    assert last.value is not None
    module = last.link.scope.module
    return OneShot(name, module.line(last.value.at), module, last.value.at, last.link, iterated)


def _is_iterator(ev: Evaluator, expr: forms.Expr, point: Point, depth: int) -> bool:
    """Whether an expression certainly gives an iterator that ends."""
    if depth > 6:
        return False
    if isinstance(expr, forms.Comp):
        return expr.kind == "generator"
    if isinstance(expr, forms.Call):
        return _gives_iterator(ev, expr, point)
    if isinstance(expr, forms.Name):
        return _named_iterator(ev, expr.id, point, depth)
    return False


def _gives_iterator(ev: Evaluator, call: forms.Call, point: Point) -> bool:
    values = list(ev.values(call.func, point))
    return bool(values) and all(
        isinstance(value, External)
        and (library.canonical(value.path) in _ITERATORS | _FILES or _reads_in_chunks(value.path, call))
        or isinstance(value, Func)
        and value.scope.function.is_generator
        and not value.scope.function.is_async
        and not value.scope.decorators()
        and not loops_for_ever(value.scope)
        for value in values
    )


def _reads_in_chunks(path: str, call: forms.Call) -> bool:
    """``pandas.read_csv(path, chunksize=1000)``."""
    return path.startswith("pandas.read_") and any(arg.name in ("chunksize", "iterator") for arg in call.args)


def _named_iterator(ev: Evaluator, name: str, point: Point, depth: int) -> bool:
    scope = point.frame.scope
    assigned = [link for link in links_of(scope) if name in link.changes and not link.blocks]
    if assigned:
        if len(assigned) > 1 or not isinstance(assigned[0].stmt, forms.Assign):
            return False
        where = Point(point.frame, assigned[0])
        targets = assigned[0].stmt.targets
        return dotted(targets[0]) == name and _is_iterator(ev, assigned[0].stmt.value, where, depth + 1)
    if scope.kind != "function" or all(param.name != name for param in scope.function.params):
        return False
    passed = [(thunk.expr, thunk.point) for thunk, _ in calling.parameter_thunks(ev, name, point.frame)]
    return bool(passed) and all(
        expr is not None and where is not None and _is_iterator(ev, expr, where, depth + 1) for expr, where in passed
    )


# -- an object that is its own iterator


def _own_iterator(dataset: DatasetClass, method: Scope, returned: Link) -> OneShot | None:
    """``__iter__`` that returns ``self`` and sets nothing back, with a ``__next__`` that comes to an end."""
    following = dataset.project.method(dataset.cls, "__next__")
    if following is None or any(_may_reset(link, method) for link in links_of(method)):
        return None
    raises = [link for link in links_of(following) if _stops(link)]
    if not raises:
        return _advanced(dataset, following, returned)
    if any(_is_reset_before(link, following) for link in raises) or _is_reset_elsewhere(dataset, raises):
        return None
    assert returned.scope.module is method.module
    text = method.module.line(returned.stmt.at)
    return OneShot("", text, method.module, returned.stmt.at, returned, returned)


def _advanced(dataset: DatasetClass, following: Scope, returned: Link) -> OneShot | None:
    """``__next__`` that takes the next of an iterator, whose end is its own."""
    for site in following.module.calls_by_scope.get(following, ()):
        call = site.expr
        assert isinstance(call, forms.Call)
        caught = any(isinstance(outer.stmt, forms.Try) for outer in site.link.outer())
        if dotted(call.func) == "next" and len(call.args) == 1 and not caught:
            own, _, name = (dotted(call.args[0].value) or "").partition(".")
            if name and own == following.function.params[0].name and "." not in name:
                return _used_up(dataset, name, returned)
    return None


def _stops(link: Link) -> bool:
    """``raise StopIteration``."""
    stmt = link.stmt
    if not isinstance(stmt, forms.Raise) or stmt.value is None:
        return False
    raised = stmt.value.func if isinstance(stmt.value, forms.Call) else stmt.value
    return last_name(raised) == "StopIteration"


def _is_reset_before(raised: Link, following: Scope) -> bool:
    """Whether something is set back in the block of ``raise StopIteration``, or in the blocks around it."""
    here: Link | None = raised
    while here is not None and here.parent is not None:
        for earlier in here.block[: here.index]:
            if _may_reset(earlier, following) or any(_may_reset(link, following) for link in links_in(earlier)):
                return True
        here = here.parent
    return False


def _is_reset_elsewhere(dataset: DatasetClass, raises: list[Link]) -> bool:
    """Whether another method, such as ``set_signal``, sets what decides that it has come to its end."""
    asked = {
        name
        for link in raises
        for outer in link.outer()
        if isinstance(outer.stmt, (forms.If, forms.While))
        for part in descend(outer.stmt.test)
        if isinstance(part, forms.Attr) and (name := part.name)
    }
    own = ("__init__", "__post_init__", "__next__")
    stores = [store for name in asked for store in dataset.project.stores(dataset.cls, name)]
    return any(store.link.scope.name not in own for store in stores)


def _may_reset(link: Link, method: Scope) -> bool:
    """Whether a statement sets an attribute, or calls something for its effect."""
    own = f"{method.function.params[0].name}." if method.function.params else "self."
    if any(name.startswith(own) for name in link.changes):
        return True
    return isinstance(link.stmt, forms.Do) and isinstance(link.stmt.value, forms.Call)
