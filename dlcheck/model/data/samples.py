"""What samples are made of and what they cost: files decoded, tensors put on the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling, library
from dlcheck.model.conditions import IN_WORKER
from dlcheck.model.datasets import DatasetAlt, datasets_of
from dlcheck.model.depth import unfolds
from dlcheck.model.scopes import Link, Module, Scope, loops_for_ever
from dlcheck.model.transfers import TENSOR_MAKERS, device_kinds
from dlcheck.model.values import Bound, Const, Func, Instance, LambdaFunc, Made, Many, Mapping, Moved, Point, Value
from dlcheck.model.workers import WorkerCall, WorkerCode, worker_code
from dlcheck.model.worlds import World, product

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.loaders import Loader
    from dlcheck.model.project import Project

# Asking which worker one is: such code knows what it does.
WORKER_WORDS = frozenset({"get_worker_info", "worker_info", "WorkerInfo", "_worker_info"})

# Libraries whose calls are work for a CPU, sample by sample.
_HEAVY = ("librosa.", "torchaudio.", "soundfile.", "albumentations.", "skimage.", "imgaug.", "scipy.signal.", "pydub.")


class Cost(NamedTuple):
    """Why a sample takes time: the function, and where it is called (None inside a library's dataset)."""

    dataset: str
    what: str
    spot: tuple[Module, int] | None
    world: World


class CudaUse(NamedTuple):
    """A tensor put on the GPU where samples or batches are made."""

    module: Module
    at: int
    link: Link
    text: str
    owner: str
    world: World


class CudaSample(NamedTuple):
    """A sample or batch that is on the GPU already: where it was put there, and who returns it."""

    module: Module
    at: int
    owner: str
    world: World


def worker_codes(loader: Loader) -> Iterator[tuple[WorkerCode, str, World]]:
    """What runs in the workers of a loader, by entry: the code, the name of its class or function, the world."""
    for alt in loader.held_datasets:
        if alt.dataset is not None:
            yield alt.dataset.worker_code, alt.dataset.name, alt.world
    yield from library_transforms(loader)
    for name in ("collate_fn", "worker_init_fn"):
        for option in loader.option(name):
            if isinstance(option.value, (Func, Instance, Bound, LambdaFunc)):
                yield worker_code(loader.project, option.value), function_name(option.value), option.world


def library_transforms(loader: Loader) -> Iterator[tuple[WorkerCode, str, World]]:
    """The project's own transforms and readers that a library's dataset calls for each sample."""
    for alt in loader.datasets:
        if alt.dataset is not None or alt.made is None or alt.made.args is None:
            continue
        if not alt.path.startswith("torchvision.datasets."):
            continue
        given = [thunk for thunk, starred in alt.made.args.positional if not starred]
        given += [thunk for name, thunk in alt.made.args.keywords if name != "is_valid_file"]  # asked once
        for thunk in given:
            for value, world in loader.project.evaluator.force(thunk):
                both = world.merge(alt.world)
                code = worker_code(loader.project, value) if both is not None else None
                if code is not None and both is not None and (code.frames or code.calls):
                    yield code, alt.path.rpartition(".")[2], both


def sample_costs(loader: Loader) -> Iterator[Cost]:
    """The reasons why samples of this loader's datasets are dear, each with its world."""
    for dataset in datasets_of(loader):
        if dataset.dataset is not None:
            yield from _own_costs(dataset)
        elif dataset.made is not None:
            yield from _library_costs(loader.project, dataset)


def _own_costs(alt: DatasetAlt) -> Iterator[Cost]:
    dataset = alt.dataset
    assert dataset is not None
    code = dataset.worker_code
    if dataset.is_iterable and not code.mentions(WORKER_WORDS):
        return  # more workers would only repeat the samples
    if any(True for _ in _cuda_calls(dataset.project, code, dataset.name)):
        return
    for call in code.calls:
        what = _work(call)
        # One file of many samples: the path is the same, what is read of it is not.
        if what and (call.path == "h5py.File" or code.depends_on_sample(call)):
            both = alt.world.merge(call.world)
            if both is not None:
                yield Cost(dataset.name, what, (call.site.module, call.call.at), both)


def work_in(code: WorkerCode) -> Iterator[tuple[str, WorkerCall]]:
    """The calls in worker code that are work for a CPU in each sample: what the work is, and the call."""
    for call in code.calls:
        what = _work(call)
        if what and code.depends_on_sample(call):
            yield what, call


def _work(call: WorkerCall) -> str:
    path = library.canonical(call.path)
    if path in library.DECODERS and call.call.args:
        return path.removeprefix("builtins.").removeprefix("PIL.")
    if path.startswith(_HEAVY):
        return path
    return ""


def _library_costs(project: Project, alt: DatasetAlt) -> Iterator[Cost]:
    made = alt.made
    assert made is not None
    name = made.path.rpartition(".")[2]
    if made.path in library.DECODING_DATASETS:
        yield Cost(name, f"{name}.__getitem__", None, alt.world)
    elif made.path in library.MEMORY_DATASETS and made.args is not None:
        transform = calling.keyword(made.args, "transform")
        if transform is not None:
            for value, world in project.evaluator.force(transform):
                dear = _dear_transform(project, value, 0)
                both = alt.world.merge(world)
                if dear and both is not None:
                    yield Cost(name, dear, None, both)


def _dear_transform(project: Project, value: Value, depth: int) -> str:
    """A transform that does more than change the type, by name; "" where there is none, or none is known."""
    if isinstance(value, Many) and depth < 3:
        for thunk in value.items:
            for alt in project.evaluator.force(thunk):
                dear = _dear_transform(project, alt.value, depth + 1)
                if dear:
                    return dear
    if isinstance(value, Made) and value.path.startswith(("torchvision.transforms.", "torchvision.transforms.v2.")):
        name = value.path.rpartition(".")[2]
        if name == "Compose" and value.args is not None and value.args.positional:
            inner = [alt.value for alt in project.evaluator.force(value.args.positional[0][0])]
            return next((dear for item in inner if (dear := _dear_transform(project, item, depth + 1))), "")
        if name[:1].isupper() and name not in library.CHEAP_TRANSFORMS:
            return f"transforms.{name}"
    return ""


# -- CUDA


def cuda_uses(loader: Loader) -> Iterator[CudaUse]:
    """Where the dataset's methods or ``collate_fn`` put tensors on the GPU."""
    for code, owner, world in loader.worker_codes:
        for use in _cuda_calls(loader.project, code, owner):
            both = world.merge(use.world)
            if both is not None:
                yield use._replace(world=both)


def function_name(value: Value) -> str:
    if isinstance(value, Func):
        return value.scope.qualified
    if isinstance(value, Bound):
        return function_name(value.func)
    return value.cls.name if isinstance(value, Instance) else "collate_fn"


def _cuda_calls(project: Project, code: WorkerCode, owner: str) -> Iterator[CudaUse]:
    for call in code.calls:
        for world in _to_cuda(project, call):
            in_worker = world.assume(IN_WORKER, True)
            if in_worker is not None:
                text = call.site.module.line(call.call.at)
                yield CudaUse(call.site.module, call.call.at, call.site.link, text, owner, in_worker)


def _to_cuda(project: Project, call: WorkerCall) -> Iterator[World]:
    ev = project.evaluator
    func = call.call.func
    args = calling.arguments(call.call, call.point)
    guards = ev.guards(call.site.link, call.point.frame)
    if isinstance(func, forms.Attr) and func.name == "cuda" and not call.path.startswith("torch.cuda"):
        yield from product(guards, [call.world])
        return
    thunk = None
    if isinstance(func, forms.Attr) and func.name == "to":
        thunk = calling.keyword(args, "device") or calling.positional(args, 0)
    elif library.canonical(call.path) in TENSOR_MAKERS:
        thunk = calling.keyword(args, "device")
    if thunk is not None:
        cuda = [world for kind, world in device_kinds(ev, thunk) if kind == "cuda"]
        yield from product(product(guards, cuda), [call.world])


def cuda_samples(loader: Loader) -> Iterator[CudaSample]:
    """The CUDA tensors that ``__getitem__`` or ``collate_fn`` return, or a TensorDataset holds."""
    project = loader.project
    ev = project.evaluator
    for alt in datasets_of(loader):
        if alt.path == library.TENSOR_DATASET and alt.made is not None and alt.made.args is not None:
            for thunk, _ in alt.made.args.positional:
                for value, world in ev.force(thunk):
                    yield from _on_gpu(ev, value, alt.world.merge(world), "TensorDataset", 0)
        method = project.method(alt.dataset.cls, "__getitem__") if alt.dataset is not None else None
        if method is not None and alt.dataset is not None:
            for value, world in calling.returned(ev, ev.frame(method, self_=alt.dataset.instance)):
                yield from _on_gpu(ev, value, alt.world.merge(world), alt.dataset.name, 0)
    for option in loader.option("collate_fn"):
        if isinstance(option.value, Func):
            for value, world in calling.returned(ev, ev.frame(option.value.scope, self_=option.value.self_)):
                yield from _on_gpu(ev, value, option.world.merge(world), function_name(option.value), 0)


def _on_gpu(ev: Evaluator, value: Value, world: World | None, owner: str, depth: int) -> Iterator[CudaSample]:
    if world is None:
        return
    if isinstance(value, Moved) and value.place is not None:
        yield CudaSample(*value.place, owner, world)
    elif isinstance(value, (Many, Mapping)) and depth < 3:
        thunks = value.items if isinstance(value, Many) else tuple(thunk for _, thunk in value.entries)
        for thunk in thunks:
            for inner, other in ev.force(thunk):
                yield from _on_gpu(ev, inner, world.merge(other), owner, depth + 1)


def on_gpu_already(loader: Loader) -> bool:
    """Whether samples may be CUDA tensors: made so in a worker, or stored so by the dataset."""
    if loader.cuda_in_workers() or loader.cuda_samples:
        return True
    project = loader.project
    for alt in datasets_of(loader):
        if alt.made is not None and alt.made.args is not None:
            given = [thunk for thunk, _ in alt.made.args.positional]
            if any(isinstance(found.value, Moved) for thunk in given for found in project.evaluator.force(thunk)):
                return True
        elif alt.dataset is not None and _stores_cuda(project, alt):
            return True
    return False


def _stores_cuda(project: Project, alt: DatasetAlt) -> bool:
    dataset = alt.dataset
    assert dataset is not None
    ev = project.evaluator
    for cls in project.lineage(dataset.cls):
        for method in cls.functions.values():
            frame = ev.frame(method, self_=dataset.instance)
            for site in method.module.calls_by_scope.get(method, ()):
                point = Point(frame, site.link, site.inner)
                call = WorkerCall(site, point, "", World({}))
                if any(True for _ in _to_cuda(project, call)):
                    return True
    return False


# -- streams without end


@unfolds(False)
def is_endless(project: Project, value: Value) -> bool:
    """Whether iterating a sampler or dataset never ends, or only after very many samples."""
    if isinstance(value, Instance):
        method = project.method(value.cls, "__iter__")
        if method is None:
            return False
        return loops_for_ever(method) or _delegates_endless(project, value, method)
    if isinstance(value, Made) and value.args is not None:
        count = calling.argument(value.args, "num_samples", 2)
        if value.path.endswith("RandomSampler") and count is not None:
            return any(
                isinstance(alt.value, Const) and isinstance(alt.value.value, (int, float)) and alt.value.value >= 1e6
                for alt in project.evaluator.force(count)
            )
        inner = calling.positional(value.args, 0) or calling.keyword(value.args, "sampler")
        if value.path.endswith("BatchSampler") and inner is not None:
            return any(is_endless(project, alt.value) for alt in project.evaluator.force(inner))
    return False


def _delegates_endless(project: Project, value: Instance, method: Scope) -> bool:
    """``__iter__`` that slices or chains an endless helper method of the same class."""
    for site in method.module.calls_by_scope.get(method, ()):
        func = site.expr.func if isinstance(site.expr, forms.Call) else None
        if isinstance(func, forms.Attr) and isinstance(func.value, forms.Name):
            helper = project.method(value.cls, func.name)
            if helper is not None and helper is not method and loops_for_ever(helper):
                return True
    return False
