"""What a dataset's constructor keeps on ``self``: open handles, and whole data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling, library
from dlcheck.model.attributes import frame_of_method
from dlcheck.model.data.archives import is_read_as_archive
from dlcheck.model.flow import links_of
from dlcheck.model.scopes import (
    Link,
    Module,
    Scope,
    Store,
    children,
    descend,
    dotted,
    expressions,
    last_name,
    target_names,
)
from dlcheck.model.values import (
    Arguments,
    Const,
    Elements,
    External,
    Frame,
    Func,
    Instance,
    Made,
    Many,
    Mapping,
    Point,
    Value,
)
from dlcheck.model.workers import WorkerCode, code_from
from dlcheck.model.worlds import ANY, World

if TYPE_CHECKING:
    from dlcheck.model.datasets import DatasetClass
    from dlcheck.model.evaluate import Evaluator

_STATE = ("__getstate__", "__reduce__", "__reduce_ex__", "__setstate__")
_PER_PROCESS = frozenset({"get_worker_info", "worker_info", "getpid", "current_process"})

# What gives the same data in another form.
_CONVERSIONS = frozenset(
    {"numpy.array", "numpy.asarray", "numpy.ascontiguousarray", "numpy.float32", "numpy.stack", "numpy.concatenate",
     "torch.from_numpy", "torch.tensor", "torch.as_tensor", "torch.Tensor", "torch.FloatTensor", "torch.LongTensor",
     "torch.stack", "torch.cat", "numpy.squeeze", "numpy.expand_dims", "numpy.transpose"}
)  # fmt: skip


class Handle(NamedTuple):
    """A handle that the constructor opens and the workers use."""

    kind: Literal["file", "connection"]
    path: str  # of the library function that opens it
    attribute: str
    module: Module
    at: int  # the opening call
    link: Link
    world: World
    parts: tuple[str, ...] = ()  # the attributes that keep what was got from it, and are handles, too


class Kept(NamedTuple):
    """Whole data that the constructor reads and keeps.

    ``kind``: files decoded one by one into "buffers" (images, arrays, tensors: a few Python objects around memory
    that holds none), Python "objects", or one "array".
    """

    kind: Literal["buffers", "objects", "array"]
    what: str
    module: Module
    at: int  # the statement
    link: Link
    world: World


def construction_code(dataset: DatasetClass) -> WorkerCode:
    """What runs when a dataset is built."""
    project = dataset.project
    init = dataset.init
    frames = [] if init is None else [frame_of_method(project.evaluator, dataset.instance, init)]
    return code_from(project, frames)


def kept_stores(dataset: DatasetClass) -> Iterator[tuple[Store, Frame]]:
    """The assignments ``self.name = ...`` that the constructor runs."""
    lineage = dataset.project.lineage(dataset.cls)
    for frame, _ in dataset.construction_code.frames:
        built = frame.self_
        if isinstance(built, Instance) and built.key != dataset.instance.key:
            continue  # another object of the class, that this one makes
        if frame.scope.owner in lineage:
            own = frame.scope.function.params[0].name if frame.scope.function.params else ""
            for store in frame.scope.module.stores_by_scope.get(frame.scope, ()):
                if dotted(store.target.value) == own:
                    yield store, frame


# -- handles


def handles(dataset: DatasetClass) -> list[Handle]:
    """The handles that workers inherit from the constructor."""
    project = dataset.project
    if any(project.method(dataset.cls, name) is not None for name in _STATE):
        return []
    if dataset.worker_code.mentions(_PER_PROCESS):
        return []
    found = list(_used(dataset, dataset.cls, _opened(dataset, kept_stores(dataset))))
    for held in _held_objects(dataset):
        if not any(project.method(held.cls, name) is not None for name in _STATE):
            found += _used(dataset, held.cls, _opened(dataset, _stores_of(dataset, held)))
    return found


def _held_objects(dataset: DatasetClass) -> list[Instance]:
    """The objects of other project classes that the constructor keeps: readers, other datasets."""
    ev, found = dataset.project.evaluator, dict[object, Instance]()
    lineage = dataset.project.lineage(dataset.cls)
    for store, frame in kept_stores(dataset):
        if store.value is not None and dataset.worker_code.reads_attribute(dataset.cls, store.target.name):
            for value in ev.values(store.value, Point(frame, store.link)):
                if isinstance(value, Instance) and value.cls not in lineage:
                    found.setdefault((value.cls, value.key), value)
    return list(found.values())


def _stores_of(dataset: DatasetClass, held: Instance) -> Iterator[tuple[Store, Frame]]:
    """The assignments ``self.name = ...`` in the constructor of an object."""
    init = dataset.project.method(held.cls, "__init__")
    if init is None or not init.function.params:
        return
    frame = frame_of_method(dataset.project.evaluator, held, init)
    for store in init.module.stores:
        if store.link.scope is init and dotted(store.target.value) == init.function.params[0].name:
            yield store, frame


def _opened(dataset: DatasetClass, stores: Iterable[tuple[Store, Frame]]) -> list[tuple[str, Made, World]]:
    """What libraries made of it that an object keeps from its construction on, by attribute."""
    ev, code = dataset.project.evaluator, dataset.worker_code
    stored: list[tuple[str, Made, World]] = []
    for store, frame in stores:
        if store.value is None or code.stores_attribute(store.target.name):
            continue
        if isinstance(store.link.stmt, forms.With):
            continue
        for value, world in ev.eval(store.value, Point(frame, store.link)):
            for made, other in _made_inside(ev, value):
                for guard in ev.guards(store.link, frame):
                    both = world.merge(other)
                    joint = both.merge(guard) if both is not None else None
                    if joint is not None:
                        stored.append((store.target.name, made, joint))
    return stored


def _made_inside(ev: Evaluator, value: Value) -> Iterator[tuple[Made, World]]:
    """What a library made, also as the items of a list or dict."""
    if isinstance(value, Made):
        yield value, ANY
    elif isinstance(value, Elements):
        inner = value.point.module.inners.get(value.form.at)
        for found, world in ev.eval(value.form.value, Point(value.point.frame, value.point.link, inner)):
            if isinstance(found, Made):
                yield found, world
    elif isinstance(value, (Many, Mapping)):
        thunks = value.items if isinstance(value, Many) else tuple(thunk for _, thunk in value.entries)
        for thunk in thunks[:6]:
            for found, world in ev.force(thunk):
                if isinstance(found, Made):
                    yield found, world


def _used(dataset: DatasetClass, cls: Scope, stored: list[tuple[str, Made, World]]) -> Iterator[Handle]:
    for name, made, world in stored:
        kind = _handle_kind(dataset.project.evaluator, made)
        if kind is None:
            continue
        root = _root(made.path)
        if _as_opened(made.path) != root and any(_as_opened(other.path) == root for _, other, _ in stored):
            continue  # the handle itself is kept, too, and speaks for its parts
        parts = {
            other
            for other, value, _ in stored
            if _root(value.path) == root and _handle_kind(dataset.project.evaluator, value)
        }
        if any(dataset.worker_code.reads_attribute(cls, part) for part in parts | {name}):
            opened = _opening(made)
            if opened.args is not None and opened.args.call is not None and opened.args.point is not None:
                point = opened.args.point
                yield Handle(
                    kind, root, name, point.module, opened.args.call.at, point.link, world, tuple(sorted(parts))
                )


def _opening(made: Made) -> Made:
    """The opened handle itself, of something that was got from it."""
    while isinstance(made.base, Made) and not _is_opened_path(made.path):
        made = made.base
    return made


def _is_opened_path(path: str) -> bool:
    return path.startswith("pathlib.") and path.endswith("().open")


def _root(path: str) -> str:
    """The function that opened what ``path`` is part of."""
    path = _as_opened(path)
    return path.partition("()")[0].partition("[")[0]


def _as_opened(path: str) -> str:
    """``Path(...).open`` is ``open``."""
    owner, opened, rest = path.partition("().open")
    return f"builtins.open{rest}" if opened and owner.startswith("pathlib.") else path


def _handle_kind(ev: Evaluator, made: Made) -> Literal["file", "connection"] | None:
    if made.path.endswith("[:]"):
        return None
    root = _root(made.path)
    rest = _as_opened(made.path).removeprefix(root)
    if root == "numpy.load":
        return "file" if rest == "" and _is_archive(ev, made) else None
    kind = library.HANDLES.get(root)
    if kind is None:
        return None
    if set(rest.split("[]")) - {"", "().get", "().cursor", "().begin", "().open", "().session", "().require_group"}:
        return None  # something read from it: data, not a handle
    return "file" if kind == "file" else "connection"


def _is_archive(ev: Evaluator, made: Made) -> bool:
    args = made.args
    if args is not None and args.call and args.point and is_read_as_archive(args.call, args.point.link):
        return True
    first = calling.positional(args, 0) if args is not None else None
    return first is not None and any(
        isinstance(alt.value, Const) and str(alt.value.value).endswith(".npz") for alt in ev.force(first)
    )


# -- whole data


def kept_data(dataset: DatasetClass) -> list[Kept]:
    """The data that the constructor reads whole; empty where samples are read one by one later."""
    if any(_reads_a_file(call.path) for call in dataset.worker_code.calls):
        return []  # what the constructor read is a manifest
    if _reads_through_handle(dataset):
        return []
    return [*_bulk(dataset), *_in_loops(dataset), *_mapped(dataset)]


def _reads_through_handle(dataset: DatasetClass) -> bool:
    """Whether samples are read one by one through a handle that the constructor opened."""
    ev = dataset.project.evaluator
    return any(
        _handle_kind(ev, made) is not None and dataset.worker_code.reads_attribute(dataset.cls, store.target.name)
        for store, frame in kept_stores(dataset)
        if store.value is not None and not isinstance(store.link.stmt, forms.With)
        for value in ev.values(store.value, Point(frame, store.link))
        for made, _ in _made_inside(ev, value)
    )


def _reads_a_file(path: str) -> bool:
    method = path.rpartition(".")[2] if "()" in path else ""
    return library.canonical(path) in library.DECODERS or method in library.READING_METHODS


def _bulk(dataset: DatasetClass) -> Iterator[Kept]:
    ev = dataset.project.evaluator
    scopes = {frame.scope for frame, _ in dataset.construction_code.frames}
    first: dict[tuple[Module, int], Link] = {}  # one file may fill several attributes: it is read whole once
    for store, frame in kept_stores(dataset):
        if store.value is None or not dataset.worker_code.reads_attribute(dataset.cls, store.target.name):
            continue
        for value, world in ev.eval(store.value, Point(frame, store.link)):
            read = _reading(value)
            if not _read_in(value, scopes) or read is not None and first.setdefault(read, store.link) is not store.link:
                continue
            for path, kind in _bulk_source(ev, value, 0):
                if kind == "objects" and _is_a_table(dataset, store.target.name):
                    continue
                for guard in ev.guards(store.link, frame):
                    both = world.merge(guard)
                    if both is not None:
                        yield Kept(kind, path, store.link.scope.module, store.link.stmt.at, store.link, both)


def _reading(value: Value) -> tuple[Module, int] | None:
    """The call that read what a value is a part of."""
    made = value.of if isinstance(value, External) else value
    opened = _opening(made) if isinstance(made, Made) else None
    if opened is None or opened.args is None or opened.args.call is None or opened.args.point is None:
        return None
    return opened.args.point.module, opened.args.call.at


def _is_a_table(dataset: DatasetClass, name: str) -> bool:
    """Whether an attribute is only looked up, by something else than the index of a sample: names, settings."""
    length = dataset.project.method(dataset.cls, "__len__")
    if length is not None and any(_own_attribute(expr, length, name) for expr in _expressions_of(length)):
        return False
    lookups = uses = 0
    for frame, _ in dataset.worker_code.frames:
        params = {param.name for param in frame.scope.function.params}
        for expr in _expressions_of(frame.scope):
            uses += _own_attribute(expr, frame.scope, name)
            if isinstance(expr, forms.Sub) and _own_attribute(expr.value, frame.scope, name):
                by_index = isinstance(expr.index, forms.Slice) or dotted(expr.index) in params
                lookups += not by_index
    return 0 < uses == lookups


def _expressions_of(scope: Scope) -> Iterator[forms.Expr]:
    return (expr for link in links_of(scope) for root in expressions(link.stmt) for expr in descend(root))


def _own_attribute(expr: forms.Expr, scope: Scope, name: str) -> bool:
    params = scope.function.params
    return isinstance(expr, forms.Attr) and bool(params) and dotted(expr) == f"{params[0].name}.{name}"


def _read_in(value: Value, scopes: set[Scope]) -> bool:
    """Whether the constructor itself read it: what its caller hands over is the caller's affair."""
    made = value.of if isinstance(value, External) else value
    return (
        not isinstance(made, Made)
        or made.args is None
        or made.args.point is None
        or (made.args.point.link.scope in scopes)
    )


def _bulk_source(ev: Evaluator, value: Value, depth: int) -> Iterator[tuple[str, Literal["objects", "array"]]]:
    """The whole-file reader that a value comes from, and what kind of data it gives."""
    path = value.path if isinstance(value, (Made, External)) else ""
    if not path or depth > 4:
        return
    root = _root(path)
    args = value.args if isinstance(value, Made) else None
    if isinstance(value, Made) and root in _CONVERSIONS and args is not None and args.positional:
        for alt in ev.force(args.positional[0][0]):
            for path, _ in _bulk_source(ev, alt.value, depth + 1):
                yield path, "array"
        return
    if root == "h5py.File" and path.endswith("[:]"):
        yield "h5py.File(...)[...][:]", "array"
    elif root in ("builtins.open", "io.open") and path.endswith((".read", ".readlines")):
        yield "open(...)." + path.rpartition(".")[2], "array" if path.endswith(".read") else "objects"
    elif root in library.BULK_READERS:
        if root == "numpy.load" and args is not None and _is_memory_map(ev, args):
            return
        if root == "numpy.load" and isinstance(value, Made) and _is_archive(ev, value) and path == root:
            return
        if args is not None and any(calling.keyword(args, name) is not None for name in ("chunksize", "iterator")):
            return  # read in parts, as it is iterated
        yield root, "objects" if library.BULK_READERS[root] == "objects" else "array"


def _is_memory_map(ev: Evaluator, args: Arguments) -> bool:
    mode = calling.argument(args, "mmap_mode", 1) or calling.keyword(args, "mmap")
    return mode is not None and not all(isinstance(alt.value, Const) and not alt.value.value for alt in ev.force(mode))


# -- files read one by one, in a loop of the constructor


def _in_loops(dataset: DatasetClass) -> Iterator[Kept]:
    for frame, world in dataset.construction_code.frames:
        scope = frame.scope
        reads = [
            call for call in dataset.construction_code.calls
            if call.site.scope is scope and _decodes(call.path) and call.call.args
        ]  # fmt: skip
        for call in reads:
            found = _kept_by_loop(dataset, scope, call.site.link, call.call)
            if found is not None:
                what = call.path.removeprefix("builtins.").removeprefix("PIL.")
                kind = _kind_of_samples(call.path, call.call, list(links_of(scope)))
                yield Kept(kind, what, found.scope.module, found.stmt.at, found, world)


_DECODERS = library.DECODERS - {
    "builtins.open", "json.load", "yaml.safe_load", "requests.get", "gzip.open", "zipfile.ZipFile", "tarfile.open",
    "wave.open",
}  # fmt: skip


def _decodes(path: str) -> bool:
    return library.canonical(path) in _DECODERS


def _gives_objects(reader: str) -> bool:
    return library.BULK_READERS.get(library.canonical(reader)) == "objects"


# What makes a Python object of each value in a buffer.
_UNPACKING = frozenset({"tolist", "to_dict", "to_list", "getdata", "list", "tuple", "iterrows", "itertuples"})


def _kind_of_samples(reader: str, read: forms.Call, links: Sequence[Link]) -> Literal["buffers", "objects"]:
    """What a file becomes that ``reader`` decodes, in a call among some statements."""
    if _gives_objects(reader):
        return "objects"
    names = _derived(links, read)
    exprs = (expr for link in links for root in expressions(link.stmt) for expr in descend(root))
    unpacked = (expr for expr in exprs if isinstance(expr, forms.Call) and last_name(expr.func) in _UNPACKING)
    return "objects" if any(_holds(expr, names, read) for expr in unpacked) else "buffers"


def _kept_by_loop(dataset: DatasetClass, scope: Scope, link: Link, read: forms.Call) -> Link | None:
    """The statement that keeps what is read in each round, if any does."""
    comp = _comprehension_around(link, read)
    if comp is not None:
        targets = {name for clause in comp.clauses for name in target_names(clause.target)}
        return _landing(dataset, scope, link) if _mentions(read, targets) else None
    loop = next((outer for outer in link.outer() if isinstance(outer.stmt, forms.For)), None)
    if loop is None or not isinstance(loop.stmt, forms.For):
        return None
    body = list(_inside(loop))
    varying = set(target_names(loop.stmt.target))
    varying.update(name for inner in body for name in inner.changes if "." not in name)
    if not _mentions(read, varying):
        return None
    read_names = _derived(body, read)
    for inner in body:
        if _keeps(inner, read_names, read):
            return _landing(dataset, scope, inner)
    return None


# -- files read one by one, by a function that is mapped over them

_MAPPING = frozenset({"map", "imap", "thread_map", "process_map"})
_WRAPPERS = frozenset({"list", "tuple", "tqdm", "stack", "array", "concatenate"})
# What makes a few numbers of all that a file holds.
_REDUCTIONS = frozenset(
    {"unique", "mean", "std", "sum", "min", "max", "median", "bincount", "histogram", "len", "sorted", "stat",
     "var", "any", "all", "count_nonzero", "argmax", "percentile", "quantile"}
)  # fmt: skip


def _mapped(dataset: DatasetClass) -> Iterator[Kept]:
    """``self.images = list(pool.map(read, paths))``."""
    ev = dataset.project.evaluator
    for frame, world in dataset.construction_code.frames:
        for link in links_of(frame.scope):
            if not isinstance(link.stmt, (forms.Assign, forms.Declare, forms.Return)) or link.stmt.value is None:
                continue
            call = _unwrapped(link.stmt.value)
            if call is None or last_name(call.func) not in _MAPPING or not call.args or call.args[0].star:
                continue
            for value in ev.values(call.args[0].value, Point(frame, link)):
                read = _reader(dataset, value)
                landing = _landing(dataset, frame.scope, link) if read is not None else None
                if read is not None and landing is not None:
                    what, kind = read
                    what = what.removeprefix("PIL.")
                    yield Kept(kind, what, landing.scope.module, landing.stmt.at, landing, world)
                    break


def _unwrapped(expr: forms.Expr) -> forms.Call | None:
    """The innermost call of ``list(tqdm(call))``."""
    while isinstance(expr, forms.Call) and last_name(expr.func) in _WRAPPERS and expr.args:
        if not isinstance(expr.args[0].value, forms.Call):
            break
        expr = expr.args[0].value
    return expr if isinstance(expr, forms.Call) else None


def _reader(dataset: DatasetClass, value: Value) -> tuple[str, Literal["buffers", "objects"]] | None:
    """The library function with which a function decodes the file that it is given, if it returns what is in it.

    And what that is.
    """
    if isinstance(value, External):
        kind: Literal["buffers", "objects"] = "objects" if _gives_objects(value.path) else "buffers"
        return (value.path, kind) if _decodes(value.path) else None
    if not isinstance(value, Func):
        return None
    code = code_from(dataset.project, [dataset.project.evaluator.frame(value.scope, self_=value.self_)])
    body = [link for link in links_of(value.scope) if not link.blocks or isinstance(link.stmt, forms.With)]
    params = {param.name for param in value.scope.function.params}
    for call in code.calls:
        if call.site.scope is value.scope and _decodes(call.path) and _mentions(call.call, params):
            names = _derived(body, call.call)
            returned = list(_returned(value.scope))
            whole = returned and all(_holds(one, names, call.call) and not _reduces(one) for one in returned)
            reduced = (_reduces(link.stmt.value) for link in body if isinstance(link.stmt, forms.Assign))
            if whole and not any(reduced):
                return call.path, _kind_of_samples(call.path, call.call, list(links_of(value.scope)))
    return None


def _reduces(expr: forms.Expr) -> bool:
    return any(isinstance(inner, forms.Call) and last_name(inner.func) in _REDUCTIONS for inner in descend(expr))


def _inside(loop: Link) -> Iterator[Link]:
    todo = [inner for block in loop.blocks.values() for inner in block]
    while todo:
        link = todo.pop(0)
        yield link
        todo.extend(inner for block in link.blocks.values() for inner in block)


def _comprehension_around(link: Link, read: forms.Call) -> forms.Comp | None:
    for root in expressions(link.stmt):
        for expr in descend(root):
            if isinstance(expr, forms.Comp) and any(inner is read for inner in descend(expr.value)):
                return expr
    return None


def _mentions(expr: forms.Expr, names: set[str]) -> bool:
    return any(isinstance(inner, forms.Name) and inner.id in names for inner in descend(expr))


def _derived(body: Iterable[Link], read: forms.Call) -> set[str]:
    """The local names that hold what was read, or something made of it."""
    names: set[str] = set()
    for link in body:
        stmt = link.stmt
        if isinstance(stmt, forms.With):
            for item in stmt.items:
                if item.target is not None and _holds(item.value, names, read):
                    names.update(target_names(item.target))
        if isinstance(stmt, forms.Assign) and _holds(stmt.value, names, read):
            names.update(name for target in stmt.targets for name in target_names(target) if "." not in name)
    return names


def _holds(expr: forms.Expr, names: set[str], read: forms.Call) -> bool:
    """Whether an expression has the data itself in it, not only its size or shape."""
    if isinstance(expr, forms.Attr) and expr.name in ("shape", "size", "width", "height", "dtype", "ndim", "filename"):
        return False
    if isinstance(expr, forms.Call) and dotted(expr.func) in ("len", "int", "float", "str", "bool"):
        return False
    if expr is read or isinstance(expr, forms.Name) and expr.id in names:
        return True
    return any(_holds(child, names, read) for child in children(expr))


_KEEPING_METHODS = frozenset({"append", "extend", "add", "update", "insert"})


def _keeps(link: Link, names: set[str], read: forms.Call) -> bool:
    """``list.append(data)``, ``d[key] = data``."""
    stmt = link.stmt
    if isinstance(stmt, forms.Do):
        done = stmt.value.items if isinstance(stmt.value, forms.Sequence) else (stmt.value,)
        return any(
            isinstance(call, forms.Call)
            and last_name(call.func) in _KEEPING_METHODS
            and any(_holds(arg.value, names, read) for arg in call.args)
            for call in done
        )
    if isinstance(stmt, forms.Assign) and any(isinstance(target, forms.Sub) for target in stmt.targets):
        return _holds(stmt.value, names, read)
    if isinstance(stmt, forms.AugAssign):
        return _holds(stmt.value, names, read) and isinstance(stmt.value, forms.Sequence)
    return False


def _landing(dataset: DatasetClass, scope: Scope, link: Link) -> Link | None:
    """The statement of the dataset that keeps what ``link`` fills, if samples are made of it.

    Where a helper fills a list and returns it, that is the assignment to ``self`` which calls it.
    """
    own = scope.function.params[0].name if scope.function.params else "self"
    attributes = {name.split(".")[1] for name in link.changes if name.startswith(f"{own}.")}
    local = {name for name in link.changes if "." not in name}
    for store in scope.module.stores if scope.owner is not None else ():
        if store.link.scope is not scope or dotted(store.target.value) != own or store.value is None:
            continue
        if store.link is link or _mentions(store.value, local):
            attributes.add(store.target.name)
    reads = dataset.worker_code.reads_attribute
    if any(reads(dataset.cls, name) for name in attributes):
        return link
    if link in scope.returns or any(_mentions(value, local) for value in _returned(scope)):
        for store, _ in kept_stores(dataset):
            if store.value is not None and reads(dataset.cls, store.target.name) and _calls(store.value, scope.name):
                return store.link
    return None


def _calls(expr: forms.Expr, name: str) -> bool:
    return any(isinstance(inner, forms.Call) and last_name(inner.func) == name for inner in descend(expr))


def _returned(scope: Scope) -> Iterator[forms.Expr]:
    for link in scope.returns:
        if isinstance(link.stmt, forms.Return) and link.stmt.value is not None:
            yield link.stmt.value
