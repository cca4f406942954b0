"""Libraries that draw from generators of their own, which PyTorch does not seed in its workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.model import calling, library
from dlcheck.model.randomness.seeding import drawn_from, seedings
from dlcheck.model.scopes import Link, Module
from dlcheck.model.values import Alt, Made, Many, Thunk
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.model.datasets import DatasetAlt
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.loaders import Loader
    from dlcheck.model.workers import WorkerCall, WorkerCode

NUMPY_SEEDED_SINCE = (1, 9)  # the PyTorch that seeds numpy in its workers

_OPENCV = frozenset({"cv2.randu", "cv2.randn", "cv2.randShuffle"})
# What of worker_init_fn or of the worker code gives the library's generator another seed.
_RESEEDS: dict[str, frozenset[str]] = {
    "imgaug": frozenset({"imgaug", "ia", "iaa", "imgaug_seed", "reseed", "seed_", "get_worker_info", "dataset"}),
    "albumentations": frozenset({"set_random_seed", "set_random_state", "get_worker_info", "dataset"}),
    "OpenCV": frozenset({"setRNGSeed"}),
    "MONAI": frozenset({"set_rnd", "set_random_state", "get_worker_info", "dataset"}),
    "numpy": frozenset(),
}


class ForeignDraw(NamedTuple):
    """Where worker code draws from the generator of a library."""

    library: str
    module: Module
    at: int
    link: Link
    world: World

    @property
    def text(self) -> str:
        return self.module.line(self.at)


def foreign_draws(loader: Loader, code: WorkerCode) -> Iterator[ForeignDraw]:
    """The first draw of each library in worker code that nothing seeds for each worker."""
    seen: set[str] = set()
    for call in code.calls:
        for name in _libraries(loader, call):
            if name not in seen and not code.mentions(_RESEEDS[name] - {"dataset", "imgaug", "ia", "iaa"}):
                seen.add(name)
                yield ForeignDraw(name, call.site.module, call.call.at, call.site.link, call.world)


def _libraries(loader: Loader, call: WorkerCall) -> Iterator[str]:
    ev = loader.project.evaluator
    if call.path in _OPENCV:
        yield "OpenCV"
    torch = loader.project.targets.torch
    if torch is not None and torch < NUMPY_SEEDED_SINCE and drawn_from(call.path) == "numpy":
        yield "numpy"
    ev.fresh()
    for value in ev.values(call.call.func, call.point):
        made = value.of if not isinstance(value, Made) and hasattr(value, "of") else value
        if isinstance(made, Made):
            name = _augments(ev, made)
            if name:
                yield name


def _augments(ev: Evaluator, made: Made) -> str:
    """The library whose random transform an object is; "" for none."""
    path = made.path.partition("()")[0]
    if path.startswith("imgaug.augmenters.") and path.rpartition(".")[2][:1].isupper():
        return "imgaug"
    if path.startswith("albumentations.") and path.endswith("Compose"):
        return "albumentations"
    return "MONAI" if _is_random_monai(ev, made, 0) else ""


def _is_random_monai(ev: Evaluator, made: Made, depth: int) -> bool:
    if not made.path.startswith("monai.transforms.") or depth > 3:
        return False
    if made.path.rpartition(".")[2].startswith("Rand"):
        return True
    thunks = [thunk for thunk, _ in made.args.positional] if made.args is not None else []
    return any(_is_random_monai(ev, inner, depth + 1) for thunk in thunks for inner in _made_in(ev, thunk))


def _made_in(ev: Evaluator, thunk: Thunk) -> Iterator[Made]:
    todo: list[Alt] = ev.force(thunk)
    for value, _ in todo:
        if isinstance(value, Made):
            yield value
        elif isinstance(value, Many):
            for item in value.items:
                yield from (alt.value for alt in ev.force(item) if isinstance(alt.value, Made))


def monai_draw(loader: Loader, alt: DatasetAlt) -> ForeignDraw | None:
    """The random transform of MONAI that a dataset of MONAI applies; its own loader would seed it."""
    made = alt.made
    if made is None or made.args is None or not made.path.startswith("monai.data."):
        return None
    thunk = calling.argument(made.args, "transform", 1)
    ev = loader.project.evaluator
    for transform in _made_in(ev, thunk) if thunk is not None else ():
        args = transform.args
        if args is None or args.call is None or args.point is None:
            continue
        if _is_random_monai(ev, transform, 0):
            return ForeignDraw("MONAI", args.point.module, args.call.at, args.point.link, alt.world)
    return None


def seeds_library(code: WorkerCode, name: str) -> bool:
    """Whether a ``worker_init_fn`` may seed a library's generator."""
    if name == "numpy":
        return any("numpy" in seeding.generators for seeding in seedings(code))
    return code.mentions(_RESEEDS[name]) or any(
        library.canonical(call.path).startswith(f"{name.lower()}.") for call in code.calls
    )
