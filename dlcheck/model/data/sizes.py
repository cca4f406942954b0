"""How many bytes a sample has, as far as the program's constants tell."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from dlcheck.model import calling
from dlcheck.model.datasets import DatasetAlt
from dlcheck.model.scopes import last_name
from dlcheck.model.values import Alt, Arguments, Const, External, Made, Many, Mapping, Thunk, Value
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.loaders import Loader

_ITEM_BYTES = {
    "float64": 8, "double": 8, "int64": 8, "long": 8, "complex64": 8, "float32": 4, "float": 4, "int32": 4, "int": 4,
    "float16": 2, "half": 2, "bfloat16": 2, "int16": 2, "short": 2, "uint8": 1, "int8": 1, "bool": 1,
}  # fmt: skip

# Functions that give an array of the shape in their arguments: bytes of an item, and where the shape begins.
_SHAPED: dict[str, tuple[int, int]] = {
    "torch.zeros": (4, 0), "torch.ones": (4, 0), "torch.empty": (4, 0), "torch.rand": (4, 0), "torch.randn": (4, 0),
    "torch.full": (4, 0), "torch.randint": (8, -1), "numpy.zeros": (8, 0), "numpy.ones": (8, 0),
    "numpy.empty": (8, 0), "numpy.full": (8, 0), "numpy.random.rand": (8, 0), "numpy.random.randn": (8, 0),
}  # fmt: skip

# Methods that change the type of an item, and those that change nothing about the size.
_CASTS = {"float": 4, "double": 8, "half": 2, "bfloat16": 2, "long": 8, "int": 4, "byte": 1, "bool": 1}
_KEEPING = frozenset({"contiguous", "clone", "copy", "permute", "transpose", "reshape", "view", "flip", "squeeze"})

# Transforms after which both sides are what they were given; of one number for Resize, the shorter side.
_SIZED = frozenset({"RandomResizedCrop", "CenterCrop", "RandomCrop", "Resize", "FiveCrop"})


def sample_bytes(loader: Loader) -> Iterator[tuple[int, World]]:
    """At least so many bytes has a sample of a loader; nothing where no part of it is known."""
    ev = loader.project.evaluator
    for alt in loader.datasets:
        for size, world in _of_dataset(ev, alt):
            both = alt.world.merge(world)
            if size and both is not None:
                yield size, both


def _of_dataset(ev: Evaluator, alt: DatasetAlt) -> Iterator[tuple[int, World]]:
    if alt.dataset is not None:
        method = alt.dataset.project.method(alt.dataset.cls, "__getitem__")
        if method is not None and alt.dataset.is_map_style:
            for value, world in calling.returned(ev, ev.frame(method, self_=alt.dataset.instance)):
                yield bytes_of(ev, value), world
    elif alt.made is not None and alt.made.args is not None and alt.path.startswith("torchvision.datasets."):
        transform = calling.keyword(alt.made.args, "transform")
        for value, world in ev.force(transform) if transform is not None else ():
            yield _transformed(ev, value), world


def bytes_of(ev: Evaluator, value: Value, depth: int = 0) -> int:
    """At least so many bytes; 0 where nothing is known."""
    if isinstance(value, (Many, Mapping)) and depth < 4:
        thunks = value.items if isinstance(value, Many) else tuple(thunk for _, thunk in value.entries)
        return sum(min(bytes_of(ev, alt.value, depth + 1) for alt in ev.force(thunk)) for thunk in thunks)
    if not isinstance(value, Made):
        return 0
    if value.path in _SHAPED and value.args is not None:
        return _of_shape(ev, value.path, value.args)
    if value.path in ("torch.from_numpy", "torch.as_tensor", "torch.tensor", "numpy.ascontiguousarray"):
        first = calling.positional(value.args, 0) if value.args is not None else None
        retyped = calling.keyword(value.args, "dtype") if value.args is not None else None
        if first is None or retyped is not None or depth > 3:
            return 0
        return min(bytes_of(ev, alt.value, depth + 1) for alt in ev.force(first))
    if value.path == "torchvision.transforms.Compose()" or value.path == "torchvision.transforms.v2.Compose()":
        return _transformed(ev, value.base) if value.base is not None else 0
    return _of_method(ev, value, depth)


def _of_method(ev: Evaluator, value: Made, depth: int) -> int:
    """``x.float()``, ``x.to(torch.uint8)``, ``x.permute(2, 0, 1)``."""
    base, method = value.base, value.path.rpartition(".")[2]
    if not isinstance(base, Made) or depth > 4 or "()" not in value.path:
        return 0
    before = bytes_of(ev, base, depth + 1)
    if method in _KEEPING:
        return before
    item = _CASTS.get(method)
    if method in ("astype", "to") and value.args is not None:
        thunk = calling.positional(value.args, 0)
        item = _item_bytes(ev, thunk) if thunk is not None else None
    was = _known_item_bytes(ev, base)
    return before // was * item if item is not None and was is not None else 0


def _known_item_bytes(ev: Evaluator, value: Made) -> int | None:
    if value.path not in _SHAPED or value.args is None:
        return None
    given = calling.keyword(value.args, "dtype")
    return _SHAPED[value.path][0] if given is None else _item_bytes(ev, given)


def _of_shape(ev: Evaluator, path: str, args: Arguments) -> int:
    item, start = _SHAPED[path]
    given = calling.keyword(args, "dtype")
    size = calling.keyword(args, "size") or calling.keyword(args, "shape")
    positional = [thunk for thunk, _ in args.positional]
    if any(starred for _, starred in args.positional):
        return 0
    if size is not None:
        positional = [size]
    elif start < 0:
        positional = positional[-1:]
    elif path.endswith(".full"):
        positional = positional[:1]
    elif path.startswith("numpy.") and not path.startswith("numpy.random.") and positional:
        given = given or (positional[1] if len(positional) > 1 else None)
        positional = positional[:1]
    bytes_of_item = item if given is None else _item_bytes(ev, given)
    shape = _shape(ev, positional)
    return bytes_of_item * prod(shape) if bytes_of_item is not None and shape else 0


def _shape(ev: Evaluator, thunks: list[Thunk]) -> list[int]:
    """The sides, where all are known: ``(3, 224, 224)`` or ``3, 224, 224``."""
    if len(thunks) == 1:
        alts = ev.force(thunks[0])
        if len(alts) == 1 and isinstance(alts[0].value, Many) and not alts[0].value.open:
            return _shape(ev, list(alts[0].value.items))
    sides = []
    for thunk in thunks:
        side = _number(ev.force(thunk))
        if side is None:
            return []
        sides.append(side)
    return sides


def _number(alts: list[Alt]) -> int | None:
    """The least of the numbers that something can be; None where one of them is unknown."""
    values = [alt.value.value for alt in alts if isinstance(alt.value, Const) and isinstance(alt.value.value, int)]
    return min(values) if values and len(values) == len(alts) else None


def _item_bytes(ev: Evaluator, thunk: Thunk) -> int | None:
    found = set()
    for alt in ev.force(thunk):
        value = alt.value
        name = value.path.rpartition(".")[2] if isinstance(value, External) else None
        if isinstance(value, Const) and isinstance(value.value, str):
            name = value.value
        if name is None and thunk.expr is not None:
            name = last_name(thunk.expr)
        size = _ITEM_BYTES.get(name or "")
        if isinstance(value, External) and value.path.startswith(("numpy.", "builtins.")) and name in ("float", "int"):
            size = 8
        found.add(size)
    return found.pop() if len(found) == 1 else None


def _transformed(ev: Evaluator, value: Value) -> int:
    """At least so many bytes has an image after ``Compose([...])``: as the last transform that fixes its size says."""
    if not isinstance(value, Made) or not value.path.startswith("torchvision.transforms.") or value.args is None:
        return 0
    listed = calling.positional(value.args, 0)
    alts = ev.force(listed) if listed is not None else []
    if value.path.rpartition(".")[2] != "Compose" or len(alts) != 1 or not isinstance(alts[0].value, Many):
        return 0
    area, names = 0, set()
    for thunk in alts[0].value.items:
        steps = [alt.value for alt in ev.force(thunk)]
        if len(steps) != 1 or not isinstance(steps[0], Made) or not steps[0].path.startswith("torchvision."):
            return 0  # it may change the size
        name = steps[0].path.rpartition(".")[2]
        names.add(name)
        if name in _SIZED:
            area = _area(ev, steps[0])
    channels = 1 if "Grayscale" in names else 3
    item = 4 if names & {"ToTensor", "Normalize", "ConvertImageDtype", "ToDtype"} else 1
    return area * channels * item


def _area(ev: Evaluator, step: Made) -> int:
    given = calling.argument(step.args, "size", 0) if step.args is not None else None
    sides = _shape(ev, [given]) if given is not None else []
    if not sides or len(sides) > 2:
        return 0
    return sides[0] * sides[-1]
