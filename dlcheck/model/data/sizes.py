"""What arrays a sample has, of what shape and type, as far as the program's constants tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from dlcheck.model import calling
from dlcheck.model.datasets import DatasetAlt
from dlcheck.model.depth import unfolds
from dlcheck.model.scopes import last_name
from dlcheck.model.values import Alt, Arguments, Const, External, Made, Many, Mapping, Thunk, Value
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.loaders import Loader

_ITEM_BYTES = {
    "float64": 8, "int64": 8, "complex64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2,
    "uint8": 1, "int8": 1, "bool": 1,
}  # fmt: skip
_ALIASES = {
    "double": "float64",
    "long": "int64",
    "float": "float32",
    "int": "int32",
    "half": "float16",
    "short": "int16",
}

# Functions that give an array of the shape in their arguments: its type, and where the shape begins.
_SHAPED: dict[str, tuple[str, int]] = {
    "torch.zeros": ("float32", 0), "torch.ones": ("float32", 0), "torch.empty": ("float32", 0),
    "torch.rand": ("float32", 0), "torch.randn": ("float32", 0), "torch.full": ("float32", 0),
    "torch.randint": ("int64", -1), "numpy.zeros": ("float64", 0), "numpy.ones": ("float64", 0),
    "numpy.empty": ("float64", 0), "numpy.full": ("float64", 0), "numpy.random.rand": ("float64", 0),
    "numpy.random.randn": ("float64", 0),
}  # fmt: skip

# Methods that change the type of an item, and those that change nothing about the size.
_CASTS = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": "int64",
    "int": "int32", "byte": "uint8", "bool": "bool",
}  # fmt: skip
_KEEPING = frozenset({"contiguous", "clone", "copy", "permute", "transpose", "reshape", "view", "flip", "squeeze"})

# Transforms after which both sides are what they were given; of one number for Resize, the shorter side.
_SIZED = frozenset({"RandomResizedCrop", "CenterCrop", "RandomCrop", "Resize", "FiveCrop"})


@dataclass(frozen=True)
class Array:
    """An array or tensor of a sample: its sides, in no certain order once it was turned, and its type's name."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        return prod(self.shape) * _ITEM_BYTES[self.dtype]


Arrays = tuple[Array, ...]

# Where torchvision's datasets take their transform by position.
_TRANSFORM_AT = {"ImageFolder": 1, **dict.fromkeys(("CIFAR10", "CIFAR100", "MNIST", "FashionMNIST", "KMNIST"), 2)}


def sample_bytes(loader: Loader) -> Iterator[tuple[int, World]]:
    """At least so many bytes has a sample of a loader; nothing where no part of it is known."""
    for arrays, world in sample_arrays(loader):
        yield size_of(arrays), world


def sample_arrays(loader: Loader) -> Iterator[tuple[Arrays, World]]:
    """The arrays of a sample whose shape is known, at least one."""
    ev = loader.project.evaluator
    for alt in loader.datasets:
        for arrays, world in _of_dataset(ev, alt):
            both = alt.world.merge(world)
            if arrays and both is not None:
                yield arrays, both


def size_of(arrays: Arrays) -> int:
    return sum(array.bytes for array in arrays)


def _of_dataset(ev: Evaluator, alt: DatasetAlt) -> Iterator[tuple[Arrays, World]]:
    if alt.dataset is not None:
        method = alt.dataset.project.method(alt.dataset.cls, "__getitem__")
        if method is not None and alt.dataset.is_map_style:
            for value, world in calling.returned(ev, ev.frame(method, self_=alt.dataset.instance)):
                yield arrays_of(ev, value), world
    elif alt.made is not None and alt.made.args is not None and alt.path.startswith("torchvision.datasets."):
        transform = calling.argument(alt.made.args, "transform", _TRANSFORM_AT.get(alt.path.rpartition(".")[2]))
        for value, world in ev.force(transform) if transform is not None else ():
            yield _transformed(ev, value), world


def arrays_of(ev: Evaluator, value: Value, depth: int = 0) -> Arrays:
    """The arrays in a value that are known: of several possible ones, the smallest."""
    if isinstance(value, (Many, Mapping)) and depth < 4:
        thunks = value.items if isinstance(value, Many) else tuple(thunk for _, thunk in value.entries)
        return tuple(array for thunk in thunks for array in _least(ev, thunk, depth))
    if not isinstance(value, Made):
        return ()
    if value.path in _SHAPED and value.args is not None:
        return _of_shape(ev, value.path, value.args)
    if value.path in ("torch.from_numpy", "torch.as_tensor", "torch.tensor", "numpy.ascontiguousarray"):
        first = calling.positional(value.args, 0) if value.args is not None else None
        retyped = calling.keyword(value.args, "dtype") if value.args is not None else None
        return () if first is None or retyped is not None or depth > 3 else _least(ev, first, depth)
    if value.path == "torchvision.transforms.Compose()" or value.path == "torchvision.transforms.v2.Compose()":
        return _transformed(ev, value.base) if value.base is not None else ()
    return _of_method(ev, value, depth)


def _least(ev: Evaluator, thunk: Thunk, depth: int) -> Arrays:
    return min((arrays_of(ev, alt.value, depth + 1) for alt in ev.force(thunk)), key=size_of, default=())


def _of_method(ev: Evaluator, value: Made, depth: int) -> Arrays:
    """``x.float()``, ``x.to(torch.uint8)``, ``x.permute(2, 0, 1)``."""
    base, method = value.base, value.path.rpartition(".")[2]
    if not isinstance(base, Made) or depth > 4 or "()" not in value.path:
        return ()
    before = arrays_of(ev, base, depth + 1)
    if method in _KEEPING:
        return before
    dtype = _CASTS.get(method)
    if method in ("astype", "to") and value.args is not None:
        thunk = calling.positional(value.args, 0)
        dtype = _dtype(ev, thunk) if thunk is not None else None
    return tuple(replace(array, dtype=dtype) for array in before) if dtype is not None else ()


def _of_shape(ev: Evaluator, path: str, args: Arguments) -> Arrays:
    usual, start = _SHAPED[path]
    given = calling.keyword(args, "dtype")
    size = calling.keyword(args, "size") or calling.keyword(args, "shape")
    positional = [thunk for thunk, _ in args.positional]
    if any(starred for _, starred in args.positional):
        return ()
    if size is not None:
        positional = [size]
    elif start < 0:
        positional = positional[-1:]
    elif path.endswith(".full"):
        positional = positional[:1]
    elif path.startswith("numpy.") and not path.startswith("numpy.random.") and positional:
        given = given or (positional[1] if len(positional) > 1 else None)
        positional = positional[:1]
    dtype = usual if given is None else _dtype(ev, given)
    shape = _shape(ev, tuple(positional))
    return (Array(shape, dtype),) if dtype is not None and shape else ()


@unfolds(())
def _shape(ev: Evaluator, thunks: tuple[Thunk, ...]) -> tuple[int, ...]:
    """The sides, where all are known: ``(3, 224, 224)`` or ``3, 224, 224``."""
    if len(thunks) == 1:
        alts = ev.force(thunks[0])
        if len(alts) == 1 and isinstance(alts[0].value, Many) and not alts[0].value.open:
            return _shape(ev, alts[0].value.items)
    sides = [side for thunk in thunks if (side := _number(ev.force(thunk))) is not None]
    return tuple(sides) if len(sides) == len(thunks) else ()


def _number(alts: list[Alt]) -> int | None:
    """The least of the numbers that something can be; None where one of them is unknown."""
    values = [alt.value.value for alt in alts if isinstance(alt.value, Const) and isinstance(alt.value.value, int)]
    return min(values) if values and len(values) == len(alts) else None


def _dtype(ev: Evaluator, thunk: Thunk) -> str | None:
    """The name of a type, where it is one; ``float`` is NumPy's and Python's of eight bytes, and torch's of four."""
    found = set()
    for alt in ev.force(thunk):
        value = alt.value
        name = value.path.rpartition(".")[2] if isinstance(value, External) else None
        if isinstance(value, Const) and isinstance(value.value, str):
            name = value.value
        if name is None and thunk.expr is not None:
            name = last_name(thunk.expr)
        if isinstance(value, External) and value.path.startswith(("numpy.", "builtins.")) and name in ("float", "int"):
            name += "64"
        name = _ALIASES.get(name or "", name or "")
        found.add(name if name in _ITEM_BYTES else None)
    return found.pop() if len(found) == 1 else None


def _transformed(ev: Evaluator, value: Value) -> Arrays:
    """An image after ``Compose([...])``: as large as the last transform that fixes its size says."""
    if not isinstance(value, Made) or not value.path.startswith("torchvision.transforms.") or value.args is None:
        return ()
    listed = calling.positional(value.args, 0)
    alts = ev.force(listed) if listed is not None else []
    if value.path.rpartition(".")[2] != "Compose" or len(alts) != 1 or not isinstance(alts[0].value, Many):
        return ()
    sides: list[int] = []
    names = set()
    for thunk in alts[0].value.items:
        steps = [alt.value for alt in ev.force(thunk)]
        if len(steps) != 1 or not isinstance(steps[0], Made) or not steps[0].path.startswith("torchvision."):
            return ()  # it may change the size
        name = steps[0].path.rpartition(".")[2]
        names.add(name)
        if name in _SIZED:
            sides = _sides(ev, steps[0])
    channels = 1 if "Grayscale" in names else 3
    as_float = names & {"ToTensor", "Normalize", "ConvertImageDtype", "ToDtype"}
    return (Array((channels, *sides), "float32" if as_float else "uint8"),) if sides else ()


def _sides(ev: Evaluator, step: Made) -> list[int]:
    """Height and width; one number is both, and the shorter one of Resize."""
    given = calling.argument(step.args, "size", 0) if step.args is not None else None
    sides = _shape(ev, (given,)) if given is not None else ()
    return [sides[0], sides[-1]] if 0 < len(sides) <= 2 else []
