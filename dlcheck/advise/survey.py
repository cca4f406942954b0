"""The loaders of a program, as far as the code tells what decides their options; plain data with its places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dlcheck.advise.costs import PREFETCH
from dlcheck.advise.known import DatasetFacts
from dlcheck.checks.report import joint
from dlcheck.model.data.collecting import collected
from dlcheck.model.data.in_memory import is_plain_tensor_dataset, lies_in_memory
from dlcheck.model.program import chosen_method, is_imported, start_method
from dlcheck.model.randomness.sharding import shares_out
from dlcheck.model.subjects import describe
from dlcheck.model.values import Const

if TYPE_CHECKING:
    from dlcheck.model import Project
    from dlcheck.model.loaders import Loader, OptionAlt
    from dlcheck.model.scopes import Module
    from dlcheck.model.values import Point

OPTIONS = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "multiprocessing_context")
MAX_CHAIN = 8


@dataclass(frozen=True, slots=True)
class Spot:
    """A line of the program: ``path`` as reports show it; ``cell`` of a notebook."""

    path: str
    line: int
    cell: int | None = None

    def __str__(self) -> str:
        return f"{self.path}:{f'cell {self.cell}:' if self.cell is not None else ''}{self.line}"


@dataclass(frozen=True, slots=True)
class Written:
    """A value that an option has as the program stands: ``text`` for people, ``value`` where it is a constant.

    ``known``: whether it is one; ``at``: where it is written, None for torch's default; ``origin``: where the constant
    comes from, in words, if from elsewhere.
    """

    text: str
    value: int | float | bool | str | None
    known: bool
    at: Spot | None = None
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of its batches to a device; ``non_blocking`` is None where it is not known."""

    at: Spot
    non_blocking: bool | None


class Setting(NamedTuple):
    """Numbers that are those of a loader at the same time; ``batch_size`` is None where it is not known."""

    workers: int
    prefetch: int
    batch_size: int | None


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A loader as the program has it.

    ``callers`` lead to it, the nearest first; ``dataset`` is for people; ``file`` and ``lines`` tell it from others,
    as measurements do; ``settings`` are with workers, one for each world that the code knows.
    """

    name: str
    at: Spot
    file: str
    lines: tuple[int, int]
    callers: tuple[Spot, ...]
    dataset: str
    facts: DatasetFacts
    written: dict[str, tuple[Written, ...]]
    copies: tuple[Copy, ...]
    settings: tuple[Setting, ...]
    several_ranks: bool
    script: str  # the file to run; empty where it cannot be told


def survey(project: Project) -> Iterator[Surveyed]:
    """The loaders that are built, used or asked for in the files that were named."""
    found = [loader for loader in project.loaders if loader.path and _is_asked(loader)]
    traced = {loader.constructor for loader in found if loader.ref.point.frame.site is not None}
    for loader in found:
        if loader.ref.point.frame.site is not None or loader.constructor not in traced or _is_only_here(loader):
            yield _surveyed(loader)


def _is_only_here(loader: Loader) -> bool:
    """Whether a loop knows it without any caller: a function's own loader that is used there as well."""
    return any(loop.direct and loop.link.scope is loader.link.scope for loop in loader.loops)


def _is_asked(loader: Loader) -> bool:
    modules = [loader.module, *(point.module for point in _chain(loader)), *(loop.module for loop in loader.loops)]
    return any(loader.project.is_asked(module) for module in modules)


def _chain(loader: Loader) -> list[Point]:
    """Where it is called for, the nearest first."""
    points: list[Point] = []
    site = loader.ref.point.frame.site
    while site is not None and len(points) < MAX_CHAIN:
        points.append(site)
        site = site.frame.site
    return points


def _surveyed(loader: Loader) -> Surveyed:
    described = describe(loader)
    place = described["loader"]
    chain = [_spot(point.module, point.link.head) for point in _chain(loader)]
    return Surveyed(
        name=loader.name,
        at=_spot(loader.module, loader.call.at),
        file=place["file"],
        lines=(place["line"], place["end_line"]),
        callers=tuple(dict.fromkeys(chain)),
        dataset=_dataset(loader),
        facts=_facts(loader, described),
        written={name: tuple(_written(loader.option(name))) for name in OPTIONS},
        copies=tuple(dict.fromkeys(_copies(loader))),
        settings=tuple(dict.fromkeys(_settings(loader))),
        several_ranks=_several_ranks(loader),
        script=_script(loader),
    )


def _spot(module: Module, at: int) -> Spot:
    place = module.source.place(*module.facts.span(at))
    return Spot(place.path, place.line, place.cell)


# What is written


def _written(alternatives: Sequence[OptionAlt]) -> Iterator[Written]:
    seen: set[str] = set()
    # A default that the user of the program can override is a value, and what they may give instead another.
    free = {(alt.module, alt.at) for alt in alternatives if isinstance(alt.value, Const) and alt.value.origin}
    for alt in alternatives:
        one = _one(alt)
        if one.text not in seen and (one.known or (alt.module, alt.at) not in free):
            seen.add(one.text)
            yield one


def _one(alt: OptionAlt) -> Written:
    value, at = alt.value, _spot(alt.module, alt.at) if alt.module is not None else None
    if isinstance(value, Const) and (value.value is None or isinstance(value.value, (bool, int, float, str))):
        origin = value.origin
        words = f"{origin.words}, {_spot(origin.module, origin.at)}" if origin is not None else ""
        return Written(repr(value.value), value.value, True, at, words)
    text = alt.module.line(alt.at) if alt.module is not None else "unknown"
    for sign in ("=", ":"):  # of an argument, and of an entry of a dict
        name, found, rest = text.partition(sign)
        if found and name.strip(" \"'").isidentifier():
            text = rest.strip()
    return Written(text if len(text) <= 40 else text[:37] + "...", None, False, at)


def _settings(loader: Loader) -> Iterator[Setting]:
    """What is never mixed of two worlds: the workers of one with the prefetching of another."""
    for workers in loader.option("num_workers"):
        for factor in loader.option("prefetch_factor"):
            for batch in loader.option("batch_size"):
                numbers = [_whole(option) for option in (workers, factor, batch)]
                each = PREFETCH if factor.is_(None) else numbers[1]
                if numbers[0] and each and joint([workers.world], [factor.world], [batch.world], loader.worlds()):
                    yield Setting(numbers[0], each, numbers[2])


def _whole(option: OptionAlt) -> int | None:
    value = option.value.value if isinstance(option.value, Const) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# What is known of the data


def _facts(loader: Loader, described: dict[str, Any]) -> DatasetFacts:
    sample, costs = described.get("sample"), loader.sample_costs()
    passes = described.get("epochs") if not described.get("epochs_free") else None
    repeated = any(loop.repeated_by() for loop in loader.loops) or bool(loader.trained_by)
    return DatasetFacts(
        batch_size=_batch_size(described),
        sample_bytes=sum(array["bytes"] for array in sample) if sample else None,
        looks_up=_looks_up(loader),
        decodes=bool(costs),
        work=_work(loader),
        held=_held(loader),
        device=_device(loader),
        moved_by=loader.framework or loader.trained_by,
        on_gpu=bool(loader.cuda_in_workers() or loader.cuda_samples) and not loader.spawns(),
        passes=passes if isinstance(passes, int) else None,
        repeats=True if repeated else False if loader.loops else None,
        repeats_in_workers=_repeats_in_workers(loader),
        changes=_changes(loader),
        start_method=_start_method(loader),
    )


def _batch_size(described: dict[str, Any]) -> int | None:
    """The largest that is known: memory must do for it."""
    known = [described["options"].get("batch_size"), *described["candidates"].get("batch_size", ())]
    return max((one for one in known if isinstance(one, int) and not isinstance(one, bool)), default=None)


def _looks_up(loader: Loader) -> bool:
    plain = all(given.is_(None) for given in loader.option("collate_fn")) and loader.is_plain
    ev = loader.project.evaluator
    return plain and bool(loader.datasets) and all(lies_in_memory(ev, alt) for alt in loader.datasets)


def _work(loader: Loader) -> str:
    for cost in loader.sample_costs():
        return f"`{cost.what}`{f', {_spot(*cost.spot)}' if cost.spot else ''}"
    return ""


def _held(loader: Loader) -> Literal["", "array", "objects", "tensor"]:
    """What the dataset keeps of which workers may come to have a copy; the dearest."""
    ev = loader.project.evaluator
    kinds: set[str] = set()
    for alt in loader.held_datasets:
        if alt.dataset is not None:
            kinds |= {"objects" if kept.kind == "objects" else "array" for kept in alt.dataset.kept_data}
            kinds |= {"objects" for _ in collected(alt.dataset)}
        if is_plain_tensor_dataset(ev, alt):
            kinds.add("tensor")
    if "objects" in kinds:
        return "objects"
    if "array" in kinds:
        return "array"
    return "tensor" if kinds else ""


def _device(loader: Loader) -> Literal["", "cuda", "cpu", "mps"]:
    copies = [transfer for transfer, _ in loader.copies()]
    if any(transfer.to_cuda() for transfer in copies):
        return "cuda"
    kinds = {kind for transfer in copies for kind, _ in transfer.devices} - {"dtype"}
    if kinds == {"mps"}:
        return "mps"
    return "cpu" if kinds == {"cpu"} else ""


def _repeats_in_workers(loader: Loader) -> bool:
    streams = [alt.dataset for alt in loader.datasets if alt.dataset is not None and alt.dataset.is_iterable]
    methods = [loader.project.method(stream.cls, "__iter__") for stream in streams]
    return bool(streams) and all(methods) and not all(shares_out(loader, stream) for stream in streams)


def _changes(loader: Loader) -> str:
    change = next((one for one in loader.dataset_changes() if one.attributes), None)
    if change is None:
        return ""
    what, where = f"{change.name}.{change.attributes[0]}", _spot(change.module, change.at)
    return f"the program changes `{what}` between epochs ({where}), which workers that live on do not see"


def _start_method(loader: Loader) -> str:
    """What the program chooses; "" where it leaves it to Python."""
    chosen = {chosen_method(loader.project, option.value) for option in loader.option("multiprocessing_context")}
    if chosen - {None}:
        own = chosen.pop()
        return own if isinstance(own, str) and not chosen else ""
    return start_method(loader.project, _program(loader)) or ""


def _program(loader: Loader) -> set[Module]:
    """The files that run with a loader, as far as they can be seen from it; others of a project are other programs."""
    around = [loader.module, *(point.module for point in _chain(loader)), *(loop.module for loop in loader.loops)]
    return {module for near in around for module in (near, *loader.project.imports.neighbours(near))}


def _script(loader: Loader) -> str:
    """The file that is run: of those that lead to the loader, the first with a main guard, or that nobody imports."""
    near = [*(point.module for point in reversed(_chain(loader))), loader.module, *(one.module for one in loader.loops)]
    modules = [module for module in dict.fromkeys(near) if not module.source.cells]
    guarded = (module for module in modules if "__main__" in module.source.text)
    alone = (module for module in modules if not is_imported(loader.project, module))
    found = next(guarded, None) or next(alone, None)
    return found.source.path if found is not None else ""


def _several_ranks(loader: Loader) -> bool:
    """Whether several processes of the program train side by side."""
    words = ("DistributedDataParallel", "init_process_group", "FullyShardedDataParallel", "fully_shard")
    return any(word in module.calls_by_name for module in _program(loader) for word in words)


def _dataset(loader: Loader) -> str:
    names = []
    for alt in loader.datasets:
        if alt.dataset is not None:
            names.append(alt.dataset.name)
        elif alt.path:
            names.append(alt.path.rpartition(".")[2].removesuffix("()"))
    known = list(dict.fromkeys(names))
    return " or ".join(known[:3]) + (" or others" if len(known) > 3 else "")


# What becomes of the batches


def _copies(loader: Loader) -> Iterator[Copy]:
    for transfer, _ in loader.copies():
        if not transfer.to_cuda():
            continue
        blocking = {blocks for blocks, _ in transfer.blocking}
        yield Copy(_spot(transfer.module, transfer.call.at), not blocking.pop() if len(blocking) == 1 else None)
