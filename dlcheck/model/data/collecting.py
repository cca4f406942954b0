"""Python containers that a dataset fills with one object for each sample, and what they are filled with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.data.keeping import kept_stores
from dlcheck.model.data.reaching import deeper, reaching
from dlcheck.model.flow import links_of, loops_around
from dlcheck.model.scopes import (
    Link,
    Module,
    Scope,
    children,
    descend,
    dotted,
    expressions,
    last_name,
    target_names,
)
from dlcheck.model.values import External, Frame, Func, Made, Point
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.facts.forms import Expr
    from dlcheck.model.datasets import DatasetClass

Source = Literal["records", "lines", "listing", ""]

# Calls that give one Python object for each record of a file, all at once.
_RECORDS = frozenset(
    {
        "json.load", "json.loads", "pickle.load", "pickle.loads", "yaml.safe_load", "yaml.load", "csv.reader",
        "csv.DictReader", "joblib.load", "ujson.load", "orjson.loads", "jsonlines.open", "dill.load", "ujson.loads",
        "simplejson.load", "simplejson.loads", "xml.etree.ElementTree.parse", "srsly.read_jsonl",
    }
)  # fmt: skip
_LISTINGS = frozenset({"os.listdir", "os.walk", "os.scandir", "glob.glob", "glob.iglob"})
_RECORD_METHODS = frozenset(
    {"iterrows", "itertuples", "to_dict", "fetchall", "to_pylist", "tolist", "to_list", "readlines", "splitlines"}
)
_SAME = frozenset({"list", "tuple", "sorted", "reversed", "enumerate", "tqdm", "zip", "iter", "islice", "filter", "map",
                   "track", "shuffle", "deepcopy"})  # fmt: skip
_PARSERS = frozenset({"loads", "dict", "literal_eval", "to_dict", "asdict"})
_CONTENTS = frozenset({"read", "read_bytes", "loader", "load", "imread"})  # the bytes of a file, or what it shows
FEW = 3  # objects in a record that is hardly more than a string


class Collected(NamedTuple):
    """A container on ``self`` with one Python object for each sample.

    ``source`` says what it was made of: parsed "records", or the "lines" of a text.  ``nested``:
    each object holds many others, as dicts do; else it is a string, or a path and its label.
    """

    attribute: str
    nested: bool
    source: Source
    what: str
    module: Module
    at: int
    link: Link
    world: World
    is_object_array: bool = False


class Filling(NamedTuple):
    """A container that is filled: by a comprehension, or round by round in a loop."""

    item: Expr
    point: Point  # of the item
    sources: tuple[tuple[Expr, Point], ...]  # what the loops go over, innermost first
    at: int


def collected(dataset: DatasetClass) -> Iterator[Collected]:
    """The containers that the constructor fills with a Python object for each sample."""
    tables = sample_tables(dataset)
    if not tables:
        return
    for store, frame in kept_stores(dataset):
        if store.target.name not in tables or store.value is None:
            continue
        own = store.link.scope.module, store.target.at, store.link
        for guard in dataset.project.evaluator.guards(store.link, frame):
            for nested, source, what, objects in _of_value(dataset, store.value, Point(frame, store.link), 0):
                yield Collected(store.target.name, nested, source, what, *own, guard, objects)
    yield from _filled_attributes(dataset, tables)


def _filled_attributes(dataset: DatasetClass, tables: set[str]) -> Iterator[Collected]:
    """``self.x.append(...)`` and ``self.x[key] = ...`` in the loops of the constructor and of its helpers."""
    lineage = dataset.project.lineage(dataset.cls)
    for frame, _ in dataset.construction_code.frames:
        if frame.scope.owner not in lineage or not frame.scope.function.params:
            continue
        own = frame.scope.function.params[0].name
        for name in sorted(tables):
            for filling in _loop_fillings(f"{own}.{name}", frame):
                source, what = _source_of(dataset, filling)
                if source:
                    for guard in dataset.project.evaluator.guards(filling.point.link, frame):
                        module = frame.scope.module
                        nested = _is_nested(filling.item, filling.point, source)
                        yield Collected(name, nested, source, what, module, filling.at, filling.point.link, guard)


def sample_tables(dataset: DatasetClass) -> set[str]:
    """The attributes with an entry for each sample: ``__len__`` gives their length, or the index picks from them."""
    project = dataset.project
    found: set[str] = set()
    length = project.method(dataset.cls, "__len__")
    if length is not None:
        for link in length.returns:
            stmt = link.stmt
            if isinstance(stmt, forms.Return) and isinstance(stmt.value, forms.Call):
                call = stmt.value
                if dotted(call.func) == "len" and len(call.args) == 1:
                    found |= _own_attribute(call.args[0].value, length)
    for name in ("__getitem__", "__iter__"):
        method = project.method(dataset.cls, name)
        if method is not None:
            found |= _picked(method)
    return found


def _picked(method: Scope) -> set[str]:
    """``self.x[index]``, or ``for item in self.x``."""
    found: set[str] = set()
    params = [param.name for param in method.function.params]
    for link in links_of(method):
        if method.name == "__iter__" and isinstance(link.stmt, forms.For):
            found |= _own_attribute(link.stmt.iter, method)
        for root in expressions(link.stmt):
            for expr in descend(root):
                if isinstance(expr, forms.Sub) and len(params) > 1 and dotted(expr.index) == params[1]:
                    found |= _own_attribute(expr.value, method)
    return found


def _own_attribute(expr: Expr, method: Scope) -> set[str]:
    params = method.function.params
    if isinstance(expr, forms.Sub):
        expr = expr.value
    if isinstance(expr, forms.Attr) and params and dotted(expr.value) == params[0].name:
        return {expr.name}
    return set()


# -- what a value is filled with

_Found = tuple[bool, Source, str, bool]  # nested, source, what, whether it is an object array


def _of_value(dataset: DatasetClass, expr: Expr, point: Point, depth: int) -> Iterator[_Found]:
    if depth > 8:
        return
    if isinstance(expr, forms.Comp):
        filling = _comprehension(expr, point)
        source, what = _source_of(dataset, filling)
        if source:
            yield _is_nested(filling.item, filling.point, source), source, what, False
        return
    if isinstance(expr, forms.Dict):
        for entry in expr.entries:
            yield from _of_value(dataset, entry.value, point, deeper(depth, len(expr.entries)))
        return
    if isinstance(expr, forms.Call):
        yield from _of_call(dataset, expr, point, depth)
        return
    if isinstance(expr, forms.Sub):  # json.load(file)["annotations"]
        for found in _of_value(dataset, expr.value, point, depth + 1):
            if found[1] == "records":
                yield found
        return
    if isinstance(expr, forms.Binary) and expr.op == "+":
        yield from _of_value(dataset, expr.left, point, depth + 1)
        return
    if isinstance(expr, forms.Name):
        yield from _of_name(dataset, expr.id, point, depth)


def _of_name(dataset: DatasetClass, name: str, point: Point, depth: int) -> Iterator[_Found]:
    frame = point.frame
    bindings, complete = reaching(name, point.link)
    for filling in _loop_fillings(name, frame):
        source, what = _source_of(dataset, filling)
        if source:
            yield _is_nested(filling.item, filling.point, source), source, what, False
    for binding in bindings:
        if binding.how == "set" and binding.value is not None:
            yield from _of_value(dataset, binding.value, Point(frame, binding.link), deeper(depth, len(bindings)))
    scope = frame.scope
    if not complete and scope.kind == "function" and any(param.name == name for param in scope.function.params):
        for thunk, _ in calling.parameter_thunks(dataset.project.evaluator, name, frame):
            if thunk.expr is not None and thunk.point is not None:
                yield from _of_value(dataset, thunk.expr, thunk.point, depth + 1)


def _of_call(dataset: DatasetClass, call: forms.Call, point: Point, depth: int) -> Iterator[_Found]:
    ev = dataset.project.evaluator
    ev.fresh()
    name = last_name(call.func)
    first = call.args[0].value if call.args and not call.args[0].star else None
    for value in ev.values(call.func, point):
        if isinstance(value, Func):
            frame = ev.frame(value.scope, calling.arguments(call, point), point, value.self_, value.closure)
            below = deeper(depth, len(value.scope.returns))
            for link in value.scope.returns:
                if isinstance(link.stmt, forms.Return) and link.stmt.value is not None:
                    yield from _of_value(dataset, link.stmt.value, Point(frame, link), below)
            return
        path = value.path if isinstance(value, External) else ""
        if path in ("numpy.array", "numpy.asarray") and first is not None:
            if any(arg.name == "dtype" and last_name(arg.value) in ("object", "object_", "O") for arg in call.args):
                for nested, source, what, _ in _of_value(dataset, first, point, depth + 1):
                    yield nested, source, what, True
            return
    if name in ("list", "tuple", "sorted", "deepcopy", "dict") and first is not None:
        inner = list(_of_value(dataset, first, point, depth + 1))
        yield from inner
        if inner:
            return
    source, what = _source(dataset, call, point, 0)
    parsed = name == "map" and first is not None and last_name(first) in _PARSERS
    if source == "records" or source and parsed:
        yield True, source, what, False


def _comprehension(comp: forms.Comp, point: Point) -> Filling:
    inside = Point(point.frame, point.link, point.module.inners.get(comp.at, point.inner))
    sources = tuple((clause.iter, inside) for clause in reversed(comp.clauses))
    return Filling(comp.value, inside, sources, comp.at)


def _loop_fillings(name: str, frame: Frame) -> Iterator[Filling]:
    """What the loops of a function add to ``name``: ``name.append(x)``, ``name[key] = x``, ``name += [x]``."""
    for link in links_of(frame.scope):
        if name not in link.changes or link.blocks:
            continue
        loops = [outer for outer in loops_around(link) if isinstance(outer.stmt, (forms.For, forms.While))]
        if not loops:
            continue
        sources = tuple((outer.stmt.iter, Point(frame, outer)) for outer in loops if isinstance(outer.stmt, forms.For))
        for item, at in _added(link, name):
            yield Filling(item, Point(frame, link), sources, at)


def _added(link: Link, name: str) -> Iterator[tuple[Expr, int]]:
    stmt = link.stmt
    if isinstance(stmt, forms.Do):
        for call in stmt.value.items if isinstance(stmt.value, forms.Sequence) else (stmt.value,):
            if not isinstance(call, forms.Call) or not isinstance(call.func, forms.Attr) or not call.args:
                continue
            receiver = call.func.value
            while isinstance(receiver, (forms.Sub, forms.Call)):  # x[key].append(y), x.setdefault(k, []).append(y)
                receiver = receiver.value if isinstance(receiver, forms.Sub) else (
                    receiver.func.value if isinstance(receiver.func, forms.Attr) else receiver.func
                )  # fmt: skip
            if dotted(receiver) == name and call.func.name in ("append", "add", "insert", "extend", "appendleft"):
                yield call.args[-1].value, call.at
    elif isinstance(stmt, forms.Assign):
        for target in stmt.targets:
            if isinstance(target, forms.Sub) and dotted(target.value) == name:
                yield stmt.value, target.at
    elif isinstance(stmt, forms.AugAssign) and dotted(stmt.target) == name and isinstance(stmt.value, forms.Sequence):
        for item in stmt.value.items[:1]:
            yield item, stmt.target.at


# -- what the rounds go over


def _source_of(dataset: DatasetClass, filling: Filling) -> tuple[Source, str]:
    """What one object for each round comes from: of nested loops, a file inside a folder counts as the file."""
    if _reads_whole(filling.item):
        return "", ""
    found: tuple[Source, str] = ("", "")
    sources = list(filling.sources)
    if sources and _counts(sources[0][0]):  # for index in range(n): the item says of what
        sources += [(part, filling.point) for part in children(filling.item) if isinstance(part, forms.Name)]
    for expr, point in sources:
        source, what = _source(dataset, expr, point, 0)
        if source in ("records", "lines"):
            return source, what
        if source and not found[0]:
            found = source, what
    if found[0] == "listing":  # paths are few and short; what their files hold is not
        return ("records", found[1]) if _has_contents(filling.item) else ("", "")
    return found


def _counts(expr: Expr) -> bool:
    return isinstance(expr, forms.Call) and last_name(expr.func) in ("range", "trange")


def _source(dataset: DatasetClass, expr: Expr, point: Point, depth: int) -> tuple[Source, str]:
    if depth > 8:
        return "", ""
    if isinstance(expr, forms.Call):
        return _called(dataset, expr, point, depth)
    if isinstance(expr, forms.Comp):
        return _source(dataset, expr.clauses[0].iter, point, depth + 1)
    if isinstance(expr, forms.Sub):
        return _source(dataset, expr.value, point, depth + 1)
    if isinstance(expr, forms.Attr):
        return _attribute_source(dataset, expr, point, depth)
    if isinstance(expr, forms.Name):
        return _name_source(dataset, expr.id, point, depth)
    return "", ""


def _called(dataset: DatasetClass, call: forms.Call, point: Point, depth: int) -> tuple[Source, str]:
    ev = dataset.project.evaluator
    ev.fresh()
    name = last_name(call.func)
    for value in ev.values(call.func, point):
        path = value.path if isinstance(value, External) else ""
        if path in _RECORDS:
            return "records", path
        if path in _LISTINGS or name in ("glob", "rglob", "iterdir", "listdir"):
            return "listing", path or name
        if path in ("builtins.open", "io.open", "gzip.open", "codecs.open", "bz2.open", "lzma.open"):
            return "lines", "open"
        if isinstance(value, Func):
            frame = ev.frame(value.scope, calling.arguments(call, point), point, value.self_, value.closure)
            below = deeper(depth, len(value.scope.returns))
            for link in value.scope.returns:
                if isinstance(link.stmt, forms.Return) and link.stmt.value is not None:
                    found = _source(dataset, link.stmt.value, Point(frame, link), below)
                    if found[0]:
                        return found
            return "", ""
    if isinstance(call.func, forms.Attr):
        if name in ("readlines", "splitlines"):
            return "lines", f"open(...).{name}"
        if name in _RECORD_METHODS:
            return ("records", f".{name}()") if _of_table(dataset, call.func.value, point) else ("", "")
        if name in ("items", "values", "keys", "strip", "split", "read", "copy"):
            inner = _source(dataset, call.func.value, point, depth + 1)
            return ("lines", inner[1]) if name in ("read", "split") and inner[0] else inner
    if name in _SAME:
        for arg in call.args:
            found = _source(dataset, arg.value, point, deeper(depth, len(call.args)))
            if found[0]:
                return found
    return "", ""


def _of_table(dataset: DatasetClass, expr: Expr, point: Point) -> bool:
    """Whether rows of a table or database are asked for: of a pandas frame, a cursor, an Arrow table."""
    method = any(isinstance(node, forms.Attr) and node.name in ("execute", "cursor") for node in descend(expr))
    if method:
        return True
    ev = dataset.project.evaluator
    for value in ev.values(expr, point):
        path = value.path if isinstance(value, (External, Made)) else ""
        if path.startswith(("pandas.", "pyarrow.", "sqlite3.", "polars.")):
            return True
    return False


def _attribute_source(dataset: DatasetClass, expr: forms.Attr, point: Point, depth: int) -> tuple[Source, str]:
    name = dotted(expr)
    if name is None:
        return _source(dataset, expr.value, point, depth + 1)
    bindings, complete = reaching(name, point.link)
    for binding in bindings:
        if binding.how == "set" and binding.value is not None:
            found = _source(dataset, binding.value, Point(point.frame, binding.link), deeper(depth, len(bindings)))
            if found[0]:
                return found
    if not complete and point.frame.scope.owner is not None and point.frame.scope.name != "__init__":
        for store, frame in kept_stores(dataset):
            if store.target.name == expr.name and store.value is not None and store.link.scope is not point.frame.scope:
                found = _source(dataset, store.value, Point(frame, store.link), depth + 1)
                if found[0]:
                    return found
    return "", ""


def _name_source(dataset: DatasetClass, name: str, point: Point, depth: int) -> tuple[Source, str]:
    frame = point.frame
    inner = point.inner
    while inner is not None:
        if isinstance(inner.form, forms.Comp):
            for clause in inner.form.clauses:
                if name in target_names(clause.target):
                    return _source(dataset, clause.iter, Point(frame, point.link, inner.parent), depth + 1)
        inner = inner.parent
    bindings, complete = reaching(name, point.link)
    for binding in bindings:
        stmt = binding.link.stmt
        value = stmt.value if binding.value is None and isinstance(stmt, forms.Assign) else binding.value  # a, b = x
        if value is None or binding.how not in ("set", "item of"):
            continue
        found = _source(dataset, value, Point(frame, binding.link), deeper(depth, len(bindings)))
        if found[0]:
            return found
    sources = [source for filling in _loop_fillings(name, frame) for source in filling.sources]
    for source, there in sources:
        found = _source(dataset, source, there, deeper(depth, len(sources)))
        if found[0]:
            return found
    scope = frame.scope
    if not complete and scope.kind == "function" and any(param.name == name for param in scope.function.params):
        for thunk, _ in calling.parameter_thunks(dataset.project.evaluator, name, frame):
            if thunk.expr is not None and thunk.point is not None:
                found = _source(dataset, thunk.expr, thunk.point, depth + 1)
                if found[0]:
                    return found
    return "", ""


_SAMPLES = frozenset(
    {"tensor", "from_numpy", "array", "asarray", "imread", "load", "as_tensor", "LongTensor", "FloatTensor", "stack"}
)


def _reads_whole(item: Expr) -> bool:
    """Whether what is added is an array or tensor of its own: no growth by reference counts worth the name."""
    return isinstance(item, forms.Call) and last_name(item.func) in _SAMPLES


def _has_contents(item: Expr) -> bool:
    parts = item.items if isinstance(item, forms.Sequence) else ()
    return any(isinstance(part, forms.Call) and last_name(part.func) in _CONTENTS for part in parts)


def _is_nested(item: Expr, point: Point, source: Source) -> bool:
    """Whether what each round adds holds many objects: a dict or a parsed record, not a path and its label."""
    if isinstance(item, forms.Sequence):
        return _has_contents(item) or len(item.items) > FEW
    if isinstance(item, forms.Call):
        return last_name(item.func) in _PARSERS
    if isinstance(item, forms.Name):
        inner = point.inner
        while inner is not None:
            if isinstance(inner.form, forms.Comp):
                for clause in inner.form.clauses:
                    if item.id in target_names(clause.target):
                        return source == "records" and not isinstance(clause.target, forms.Sequence)
            inner = inner.parent
        bindings, _ = reaching(item.id, point.link)
        return any(
            binding.how == "item of" and source == "records"
            or binding.how == "set" and binding.value is not None and not isinstance(binding.value, forms.Name)
            and _is_nested(binding.value, Point(point.frame, binding.link), source)
            for binding in bindings
        )  # fmt: skip
    return isinstance(item, (forms.Dict, forms.Comp))
