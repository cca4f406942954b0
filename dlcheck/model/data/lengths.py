"""How many samples a dataset has, where the program itself says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dlcheck.model import calling
from dlcheck.model.data.splitting import RANDOM_SPLIT
from dlcheck.model.values import Alt, Arguments, Const, Instance, Made, Many, Thunk, Value
from dlcheck.model.worlds import ANY, World

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.loaders import Loader

# Datasets of torchvision that always have as many: the training part, and the other.
_FIXED = {
    "MNIST": (60_000, 10_000),
    "FashionMNIST": (60_000, 10_000),
    "KMNIST": (60_000, 10_000),
    "CIFAR10": (50_000, 10_000),
    "CIFAR100": (50_000, 10_000),
}
# Functions whose first argument, or first number, is the length of what they make.
_SHAPED = frozenset(
    {"torch.randn", "torch.rand", "torch.zeros", "torch.ones", "torch.empty", "numpy.zeros", "numpy.ones",
     "numpy.empty", "torch.arange", "numpy.arange", "numpy.random.randn", "numpy.random.rand"}
)  # fmt: skip
_SAME_LENGTH = frozenset({"torch.tensor", "torch.from_numpy", "torch.as_tensor", "numpy.array", "numpy.asarray"})


def dataset_lengths(loader: Loader) -> Iterator[tuple[int, World]]:
    """The proven lengths of a loader's dataset, each with its world."""
    ev = loader.project.evaluator
    for option in loader.option("dataset"):
        for number, world in _lengths(ev, option.value, 0):
            both = world.merge(option.world)
            if both is not None:
                yield number, both


def _lengths(ev: Evaluator, value: Value, depth: int) -> Iterator[tuple[int, World]]:
    if depth > 6:
        return
    if isinstance(value, Many):
        if value.length is not None:
            yield value.length, ANY
    elif isinstance(value, Instance):
        yield from _own_length(ev, value)
    elif isinstance(value, Made) and value.args is not None:
        yield from _library_lengths(ev, value, value.args, depth)


def _own_length(ev: Evaluator, instance: Instance) -> Iterator[tuple[int, World]]:
    """What ``__len__`` returns, where it is a constant."""
    method = ev.project.method(instance.cls, "__len__")
    for alt in calling.returned(ev, ev.frame(method, self_=instance)) if method is not None else ():
        number = _number(alt.value)
        if number is not None:
            yield number, alt.world


def _library_lengths(ev: Evaluator, made: Made, args: Arguments, depth: int) -> Iterator[tuple[int, World]]:
    path, name = made.path, made.path.rpartition(".")[2]
    first = calling.positional(args, 0)
    if path.startswith("torchvision.datasets.") and name in _FIXED:
        yield from _fixed(ev, name, args)
    elif path == "torchvision.datasets.FakeData":
        yield from _numbers(ev, calling.argument(args, "size", 0))
    elif path == "torch.utils.data.Subset" and calling.argument(args, "lengths", 1) is not None:
        yield from _part(ev, made, args, depth)
    elif path == "builtins.range" and len(args.positional) == 1:
        yield from _numbers(ev, first)
    elif path in ("torch.utils.data.TensorDataset", *_SAME_LENGTH):
        yield from _of(ev, first, depth)
    elif path in _SHAPED and (len(args.positional) == 1 or "arange" not in path):
        yield from _shape(ev, first or calling.keyword(args, "size"))
    elif path in ("torch.randint", "numpy.random.randint"):
        yield from _shape(ev, calling.argument(args, "size", 2))


def _part(ev: Evaluator, made: Made, args: Arguments, depth: int) -> Iterator[tuple[int, World]]:
    """A part that ``random_split`` made, or a ``Subset``: what its second argument says."""
    second = calling.argument(args, "lengths", 1)
    is_split = isinstance(made.key, tuple) and made.key[0] == calling.made(RANDOM_SPLIT, args).key
    for alt in ev.force(second) if second is not None else ():
        if is_split and isinstance(alt.value, Many) and not alt.value.open:
            assert isinstance(made.key, tuple)
            numbers = [list(_numbers(ev, item)) for item in alt.value.items]
            for number, world in numbers[made.key[1]] if all(numbers) and made.key[1] < len(numbers) else ():
                both = world.merge(alt.world)
                if both is not None:
                    yield number, both
        elif not is_split:
            yield from _lengths(ev, alt.value, depth + 1)


def _fixed(ev: Evaluator, name: str, args: Arguments) -> Iterator[tuple[int, World]]:
    train = calling.argument(args, "train", 1)
    for alt in ev.force(train) if train is not None else [Alt(Const(True), ANY)]:
        if isinstance(alt.value, Const):
            yield _FIXED[name][0 if alt.value.value else 1], alt.world


def _of(ev: Evaluator, thunk: Thunk | None, depth: int) -> Iterator[tuple[int, World]]:
    for alt in ev.force(thunk) if thunk is not None else ():
        for number, world in _lengths(ev, alt.value, depth + 1):
            both = world.merge(alt.world)
            if both is not None:
                yield number, both


def _shape(ev: Evaluator, thunk: Thunk | None) -> Iterator[tuple[int, World]]:
    """The first number of a shape that is given as numbers, or as a tuple."""
    for alt in ev.force(thunk) if thunk is not None else ():
        if isinstance(alt.value, Many) and alt.value.items:
            yield from _numbers(ev, alt.value.items[0])
        else:
            yield from _numbers(ev, Thunk(None, None, (alt,)))


def _numbers(ev: Evaluator, thunk: Thunk | None) -> Iterator[tuple[int, World]]:
    for alt in ev.force(thunk) if thunk is not None else ():
        number = _number(alt.value)
        if number is not None:
            yield number, alt.world


def _number(value: Value) -> int | None:
    """A number that is written down: not one that the user may give."""
    if isinstance(value, Const) and isinstance(value.value, int) and value.free is None and value.value > 0:
        return value.value
    return None
