"""Datasets whose samples lie in memory: an item is looked up there, and nothing is done to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import attributes, calling, conditions, library
from dlcheck.model.data.archives import is_read_as_archive
from dlcheck.model.datasets import DatasetAlt, DatasetClass
from dlcheck.model.flow import links_of
from dlcheck.model.iteration import elements
from dlcheck.model.scopes import Inner, Link, descend, dotted, target_names
from dlcheck.model.values import (
    Alt,
    Const,
    Elements,
    External,
    Frame,
    Made,
    Many,
    Mapping,
    Moved,
    Point,
    Thunk,
    Value,
)
from dlcheck.model.worlds import ANY

if TYPE_CHECKING:
    from dlcheck.facts.forms import Expr
    from dlcheck.model.evaluate import Evaluator

TENSOR_DATASET = "torch.utils.data.TensorDataset"

_BASES = frozenset(
    {
        library.DATASET,
        TENSOR_DATASET,
        "typing.Generic",
        "builtins.object",
        "abc.ABC",
        "collections.abc.Sequence",
    }
)

_TORCH_ARRAYS = frozenset(
    {"tensor", "zeros", "ones", "empty", "full", "rand", "randn", "randint", "arange", "linspace", "eye", "stack",
     "cat", "concat", "normal", "randperm", "load", "Tensor", "FloatTensor", "LongTensor", "DoubleTensor",
     "IntTensor", "zeros_like", "ones_like", "rand_like", "randn_like", "sin", "cos", "where"}
)  # fmt: skip
_NUMPY_ARRAYS = frozenset(
    {"array", "zeros", "ones", "empty", "full", "arange", "linspace", "load", "loadtxt", "genfromtxt", "concatenate",
     "stack", "vstack", "hstack", "fromfile", "eye", "sin", "cos", "where", "repeat", "tile", "column_stack"}
)  # fmt: skip
# These give the memory of their argument again: whether it lies in memory is a question about that.
_SAME_MEMORY = frozenset(
    {
        "torch.from_numpy",
        "torch.as_tensor",
        "numpy.asarray",
        "numpy.ascontiguousarray",
        "numpy.asanyarray",
    }
)

# What may be called on a sample without being work: it changes the type or the shape.
_FUNCTIONS = frozenset(
    {"torch.tensor", "torch.as_tensor", "torch.from_numpy", "torch.Tensor", "torch.FloatTensor", "torch.LongTensor",
     "numpy.asarray", "numpy.array", "numpy.float32", "numpy.int64", "numpy.expand_dims", "builtins.int",
     "builtins.float", "builtins.bool", "builtins.len", "builtins.tuple", "builtins.list", "builtins.dict",
     "builtins.slice", "builtins.isinstance", "torch.is_tensor", "builtins.min", "builtins.max"}
)  # fmt: skip
_METHODS = frozenset(
    {"float", "long", "int", "half", "double", "bool", "astype", "item", "unsqueeze", "squeeze", "view", "reshape",
     "permute", "transpose", "contiguous", "clone", "copy", "flatten", "type", "numpy", "tolist", "to", "items",
     "values"}
)  # fmt: skip

# What a method of an array gives that is no array.
_SCALARS = frozenset({"item", "tolist", "size", "dim", "numel", "keys", "items", "get", "read"})


def lies_in_memory(ev: Evaluator, alt: DatasetAlt) -> bool:
    """Whether a dataset only looks its samples up in tensors or arrays that it holds in memory."""
    if alt.path == TENSOR_DATASET and alt.made is not None:
        return is_plain_tensor_dataset(ev, alt)
    if alt.dataset is None:
        return False
    if inherits_lookup(alt.dataset):
        return True
    return _Lookup(ev, alt.dataset).only_looks_up()


def is_plain_tensor_dataset(ev: Evaluator, alt: DatasetAlt) -> bool:
    """Whether it is torch's TensorDataset, its tensors neither mapped from a file nor on the GPU, as far as known."""
    if alt.dataset is not None:
        return inherits_lookup(alt.dataset)
    if alt.path != TENSOR_DATASET or alt.made is None or alt.made.args is None:
        return False
    return not any(_is_elsewhere(ev, thunk, 0) for thunk, _ in alt.made.args.positional)


def inherits_lookup(dataset: DatasetClass) -> bool:
    """A subclass of TensorDataset that leaves its items as they are."""
    own = any(dataset.project.method(dataset.cls, name) for name in ("__getitem__", "__getitems__", "__iter__"))
    return TENSOR_DATASET in dataset.bases and not own


def _is_elsewhere(ev: Evaluator, thunk: Thunk, depth: int) -> bool:
    """Whether a tensor is known to be on the GPU, or to be mapped from a file."""
    for alt in ev.force(thunk):
        value = alt.value
        if isinstance(value, Moved):
            return True
        while isinstance(value, Made):
            if _maps_file(ev, value):
                return True
            first = calling.positional(value.args, 0) if value.args is not None else None
            if value.path in _SAME_MEMORY and first is not None and depth < 4:
                return _is_elsewhere(ev, first, depth + 1)
            if value.base is None:
                break
            value = value.base
    return False


def _maps_file(ev: Evaluator, value: Made) -> bool:
    path = value.path.replace("[]", "").replace("[:]", "")
    if path.endswith(("memmap", "from_file")) or path.startswith(("h5py.", "zarr.", "tables.")):
        return True
    args = value.args if value.path == "numpy.load" else None
    if args is not None and args.call and args.point and is_read_as_archive(args.call, args.point.link):
        return True
    given = None
    if value.args is not None and path in ("numpy.load", "torch.load", "joblib.load"):
        given = calling.argument(value.args, "mmap_mode" if path != "torch.load" else "mmap", None)
        if given is None and path == "numpy.load":
            given = calling.positional(value.args, 1)
    return given is not None and not all(alt.value in (Const(None), Const(False)) for alt in ev.force(given))


def is_resident(ev: Evaluator, value: Value, depth: int = 0) -> bool:
    """Whether a value is known to be an array, a tensor, or a collection of them, in the memory of this process."""
    if depth > 5:
        return False
    if isinstance(value, Elements):
        inside = elements(ev, [Alt(value, ANY)], ("in memory", value.key))
        return all(is_resident(ev, alt.value, depth + 1) for alt in inside)
    if isinstance(value, (Many, Mapping)):
        thunks = list(value.items) if isinstance(value, Many) else [thunk for _, thunk in value.entries]
        if value.open or not thunks:
            return False
        return all(is_resident(ev, alt.value, depth + 1) for thunk in thunks[:8] for alt in ev.force(thunk))
    if isinstance(value, External) and value.of is not None:
        name = value.path.rpartition(".")[2]
        if value.path.startswith("pandas."):
            return name == "values"
        return name in ("T", "data", "values", "target", "images") and is_resident(ev, value.of, depth + 1)
    return isinstance(value, Made) and _is_resident_made(ev, value, depth)


def _is_resident_made(ev: Evaluator, value: Made, depth: int) -> bool:
    if _maps_file(ev, value):
        return False
    path = value.path.replace("[]", "").replace("[:]", "")
    first = calling.positional(value.args, 0) if value.args is not None else None
    if path in _SAME_MEMORY:
        return first is not None and not _is_elsewhere(ev, first, 0) and _is_known(ev, path, first, depth)
    if path.startswith("pandas."):
        return path.endswith((".to_numpy", ".astype")) and "().values" in path or path.endswith(".to_numpy")
    root, method = path.partition("()")[0], path.rpartition(".")[2]
    if "()" in path:
        if root.startswith("sklearn."):
            return method in ("fit_transform", "transform")
        return (
            value.base is None
            and _is_array_maker(root)
            or (value.base is not None and is_resident(ev, value.base, depth + 1))
        )
    return _is_array_maker(root)


def _is_known(ev: Evaluator, path: str, first: Thunk, depth: int) -> bool:
    """``torch.from_numpy`` of a whole array: only a mapped one is not in memory; the others take anything."""
    if path == "torch.from_numpy":
        return True
    return all(is_resident(ev, alt.value, depth + 1) for alt in ev.force(first))


def _is_array_maker(path: str) -> bool:
    name = path.rpartition(".")[2]
    if path.startswith("torch."):
        return name in _TORCH_ARRAYS and path.count(".") == 1
    if path.startswith("numpy.random."):
        return True
    if path.startswith("numpy."):
        return name in _NUMPY_ARRAYS
    return path.startswith("sklearn.datasets.make_")


class _Lookup:
    """Reads the ``__getitem__`` of a dataset: does it do anything but look up?"""

    def __init__(self, ev: Evaluator, dataset: DatasetClass) -> None:
        self.ev = ev
        self.dataset = dataset
        self.method = dataset.project.method(dataset.cls, "__getitem__")
        self.data: set[str] = set()  # local names that hold a sample, or a part of one
        self.found = False

    def only_looks_up(self) -> bool:
        dataset = self.dataset
        if self.method is None or not dataset.is_map_style or not set(dataset.bases) <= _BASES:
            return False
        if dataset.project.method(dataset.cls, "__getitems__") is not None or self.method.decorators():
            return False
        self.frame: Frame = self.ev.frame(self.method, self_=dataset.instance)
        return all(self._statement(link) for link in links_of(self.method)) and self.found

    def _statement(self, link: Link) -> bool:
        stmt = link.stmt
        if not self.ev.guards(link, self.frame):
            return True  # not for this object
        if isinstance(stmt, (forms.Assign, forms.Declare)):
            if stmt.value is None:
                return True
            targets = stmt.targets if isinstance(stmt, forms.Assign) else (stmt.target,)
            names = [name for target in targets for name in target_names(target)]
            if any("." in name for name in names) or not self._expr(stmt.value, link, None):
                return False
            if self._holds_sample(stmt.value):
                self.data.update(names)
            return True
        if isinstance(stmt, forms.If):
            return self._expr(stmt.test, link, None)
        if isinstance(stmt, forms.Return):
            return stmt.value is not None and self._expr(stmt.value, link, None)
        if isinstance(stmt, forms.Do):
            return isinstance(stmt.value, forms.Const)
        return isinstance(stmt, (forms.Raise, forms.Assert)) or isinstance(stmt, forms.Jump) and stmt.kind == "pass"

    def _holds_sample(self, expr: Expr) -> bool:
        """Whether an item that was looked up, or a name for one, stands in an expression."""
        return any(
            isinstance(part, forms.Sub) or isinstance(part, forms.Name) and part.id in self.data
            for part in descend(expr)
        )

    def _expr(self, expr: Expr | None, link: Link, inner: Inner | None, in_index: bool = False) -> bool:
        """Whether evaluating an expression is no work on a sample."""
        if expr is None or isinstance(expr, (forms.Const, forms.Name)):
            return True
        if isinstance(expr, forms.Attr):
            return self._expr(expr.value, link, inner, in_index)
        if isinstance(expr, forms.Sub):
            return self._subscript(expr, link, inner, in_index)
        if isinstance(expr, forms.Slice):
            return all(self._expr(part, link, inner, True) for part in (expr.lower, expr.upper, expr.step))
        if isinstance(expr, forms.Call):
            return self._call(expr, link, inner, in_index)
        if isinstance(expr, (forms.Binary, forms.Unary)):
            parts = [expr.left, expr.right] if isinstance(expr, forms.Binary) else [expr.value]
            if not in_index and any(self._holds_sample(part) for part in parts):
                return False
            return all(self._expr(part, link, inner, in_index) for part in parts)
        if isinstance(expr, forms.IfExp):
            return self._choice(expr, link, inner, in_index)
        if isinstance(expr, forms.Comp):
            return self._comprehension(expr, link)
        if isinstance(expr, forms.Dict):
            return all(self._expr(entry.value, link, inner, in_index) for entry in expr.entries)
        if isinstance(expr, forms.Sequence):
            return all(self._expr(item, link, inner, in_index) for item in expr.items)
        if isinstance(expr, forms.Bool):
            return all(self._expr(part, link, inner, in_index) for part in (expr.left, expr.right))
        if isinstance(expr, forms.Compare):
            return all(self._expr(part, link, inner, in_index) for part in (expr.left, *expr.rights))
        return False

    def _choice(self, expr: forms.IfExp, link: Link, inner: Inner | None, in_index: bool) -> bool:
        truths = {truth for truth, _ in conditions.truth(self.ev, expr.test, Point(self.frame, link, inner))}
        branches = [expr.body if truth else expr.orelse for truth in truths]
        return all(self._expr(branch, link, inner, in_index) for branch in branches)

    def _comprehension(self, expr: forms.Comp, link: Link) -> bool:
        """``tuple(tensor[index] for tensor in self.tensors)``."""
        inner = self.frame.scope.module.inners.get(expr.at)
        if len(expr.clauses) != 1 or expr.clauses[0].ifs or not self._expr(expr.clauses[0].iter, link, None):
            return False
        return self._expr(expr.value, link, inner)

    def _call(self, expr: forms.Call, link: Link, inner: Inner | None, in_index: bool) -> bool:
        if not all(self._expr(arg.value, link, inner, in_index) for arg in expr.args):
            return False
        values = list(self.ev.values(expr.func, Point(self.frame, link, inner)))
        if values and all(isinstance(value, External) and value.path in _FUNCTIONS for value in values):
            return True
        func = expr.func
        if not isinstance(func, forms.Attr) or func.name not in _METHODS or dotted(func.value) == "self":
            return False
        return self._expr(func.value, link, inner, in_index)

    def _subscript(self, expr: forms.Sub, link: Link, inner: Inner | None, in_index: bool) -> bool:
        if not self._expr(expr.index, link, inner, True):
            return False
        if in_index:
            return self._expr(expr.value, link, inner, True)
        root = _root(expr)
        if isinstance(root, forms.Name) and root.id in self.data:
            return True
        if isinstance(root, forms.Name) and inner is None and self._is_index(root.id):
            return True
        if not self._is_resident(root, link, inner) or self._opens_archive(root, expr, link, inner):
            return False
        self.found = True
        return True

    def _opens_archive(self, root: Expr, expr: forms.Sub, link: Link, inner: Inner | None) -> bool:
        """``self.file["x"][i]`` or ``self.file[self.names[i]]`` of an ``.npz`` that is kept open: it is read anew."""
        while isinstance(expr.value, forms.Sub):
            expr = expr.value
        index = expr.index
        if isinstance(index, forms.Sub):
            may_be_name = not self._is_resident(_root(index), link, inner)
        else:
            may_be_name = isinstance(index, forms.Const) and isinstance(index.value, str)
        values = self.ev.values(root, Point(self.frame, link))
        return may_be_name and any(isinstance(value, Made) and value.path == "numpy.load" for value in values)

    def _is_index(self, name: str) -> bool:
        assert self.method is not None
        return any(param.name == name for param in self.method.function.params[1:])

    def _is_resident(self, root: Expr, link: Link, inner: Inner | None) -> bool:
        values = list(self.ev.values(root, Point(self.frame, link, inner)))
        if values and all(is_resident(self.ev, value) for value in values):
            return True
        name = dotted(root) or ""
        if not name.startswith("self.") or name.count(".") != 1:
            return False
        stores = self.dataset.project.stores(self.dataset.cls, name.removeprefix("self."))
        return len(stores) == 1 and stores[0].value is not None and self._stored(stores[0].value, stores[0].link)

    def _stored(self, expr: Expr, link: Link) -> bool:
        """``np.load(path) / 255``: arithmetic on whole arrays gives an array."""
        frame = attributes.frame_of_method(self.ev, self.dataset.instance, link.scope)
        return self._is_array(expr, Point(frame, link), 0)

    def _is_array(self, expr: Expr, point: Point, depth: int) -> bool:
        if depth > 5:
            return False
        if isinstance(expr, forms.Binary):
            return any(self._is_array(side, point, depth + 1) for side in (expr.left, expr.right))
        if isinstance(expr, forms.Compare):
            return self._is_array(expr.left, point, depth + 1)
        method = expr.func if isinstance(expr, forms.Call) else None
        if isinstance(method, forms.Attr) and method.name not in _SCALARS:
            return self._is_array(method.value, point, depth + 1) or self._is_known_array(expr, point)
        if isinstance(expr, forms.Name):
            for before in reversed(point.link.block[: point.link.index]):
                stmt = before.stmt
                if isinstance(stmt, forms.Assign) and dotted(stmt.targets[0]) == expr.id:
                    return self._is_array(stmt.value, Point(point.frame, before), depth + 1)
        return self._is_known_array(expr, point)

    def _is_known_array(self, expr: Expr, point: Point) -> bool:
        values = list(self.ev.values(expr, point))
        return bool(values) and all(is_resident(self.ev, value) for value in values)


def _root(expr: Expr) -> Expr:
    """``self.x`` of ``self.x[i].float()[0]``."""
    while True:
        if isinstance(expr, forms.Sub):
            expr = expr.value
        elif isinstance(expr, forms.Call) and isinstance(expr.func, forms.Attr):
            expr = expr.func.value
        else:
            return expr
