"""What a dataset keeps, and how its samples share that memory: edited in place, sent as views, given as None."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model.attributes import frame_of_method
from dlcheck.model.data.memory import NONE, NUMBER, Piece
from dlcheck.model.data.paths import Paths
from dlcheck.model.data.traces import Edit, Exit, Refusal, State
from dlcheck.model.scopes import Scope, last_name
from dlcheck.model.values import Instance
from dlcheck.model.worlds import ANY, World, product

if TYPE_CHECKING:
    from dlcheck.model.datasets import DatasetClass
    from dlcheck.model.loaders import Loader
    from dlcheck.model.project import Project


@dataclass(eq=False)
class Samples:
    """The paths through the method with which a dataset makes samples: ``__getitem__``, else ``__iter__``.

    ``loaders`` are those that use it, each with its world; none where none is in sight.
    """

    dataset: DatasetClass
    attributes: Attributes
    loaders: list[tuple[Loader, World]]

    @property
    def project(self) -> Project:
        return self.dataset.project

    @property
    def instance(self) -> Instance:
        return self.dataset.instance

    @cached_property
    def method(self) -> Scope | None:
        found = self.project.method(self.instance.cls, "__getitem__")
        return found or self.project.method(self.instance.cls, "__iter__")

    @cached_property
    def _run(self) -> tuple[Paths, list[Exit]]:
        paths = Paths(self.project, self.attributes)
        if self.method is None:
            return paths, []
        params = [param.name for param in self.method.function.params if param.kind in ("positional", "normal")]
        names = dict.fromkeys(params[1:2], NUMBER)
        frame = self.project.evaluator.frame(self.method, self_=self.instance)
        exits = paths.run(frame, State(names, {}, ANY))
        return paths, paths.yielded if self.method.function.is_generator else exits

    @property
    def ends(self) -> list[Exit]:
        """What each path gives: returned, or yielded by a generator."""
        return self._run[1]

    @property
    def edits(self) -> list[Edit]:
        return self._run[0].edits

    @property
    def refusals(self) -> list[Refusal]:
        return self._run[0].refusals

    def possible(self, world: World) -> bool:
        """Whether a loader in sight can see this world; without any, all are possible."""
        if not self.loaders:
            return True
        return any(True for loader, own in self.loaders for _ in product(product([own], [world]), loader.worlds()))

    def batched(self, world: World) -> bool:
        """Whether several samples go into one batch; where no loader is in sight, they will."""
        if not self.loaders:
            return True
        for loader, own in self.loaders:
            single = all(option.is_(None) or option.is_(1) for option in loader.option("batch_size"))
            if single and all(option.is_(None) for option in loader.option("batch_sampler")):
                continue
            if any(True for _ in product(product([own], [world]), loader.worlds())):
                return True
        return False

    @staticmethod
    def _forgets_to_return(method: Scope) -> bool:
        """Whether a method computes something and returns nothing at all; a stub computes nothing."""
        return not method.returns and any(isinstance(link.stmt, forms.Assign) for link in method.body)

    def gives_none(self, end: Exit) -> bool:
        """Whether a path that ends in None is taken because of what the sample is."""
        causes = end.state.causes
        if end.link is None and self.method is not None and self._forgets_to_return(self.method):
            return True
        if any(cause.kind == "skipped" for cause in causes):
            return False
        if any(cause.kind == "failed" and cause.of_sample for cause in causes):
            return True
        if any(cause.kind == "finished" for cause in causes) and end.link is None:
            return False
        around = (
            next((link for link in end.link.outer() if isinstance(link.stmt, forms.If)), None) if end.link else None
        )
        asked = [cause for cause in causes if cause.kind == "tested" and around in (None, cause.link)]
        return bool(asked) and asked[-1].of_sample


class Attributes:
    """What objects keep since their construction, by name."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._known: dict[object, Mapping[str, Piece]] = {}

    def __call__(self, instance: Instance) -> Mapping[str, Piece]:
        key = (instance.cls, instance.key)
        if key not in self._known:
            self._known[key] = {}  # asked for on the way, nothing is known yet
            self._known[key] = self._find(instance)
        return self._known[key]

    def _find(self, instance: Instance) -> Mapping[str, Piece]:
        init = self.project.method(instance.cls, "__init__")
        if init is None:
            return {}
        paths = Paths(self.project, self)
        exits = paths.run(frame_of_method(self.project.evaluator, instance, init), State({}, {}, ANY))
        found: dict[str, list[Piece]] = {}
        for end in exits:
            for (cls, name), piece in end.state.kept.items():
                if cls is instance.cls and piece.kind != NONE:
                    found.setdefault(name, []).append(piece)
        return dict(_agreeing(found))


def _agreeing(found: Mapping[str, list[Piece]]) -> Iterator[tuple[str, Piece]]:
    """The attributes that are of one kind on all paths."""
    for name, pieces in found.items():
        best = max(pieces, key=lambda piece: piece.element is not None)
        if all(piece.kind == best.kind for piece in pieces):
            yield name, best._replace(solid=all(piece.solid for piece in pieces))


@dataclass(eq=False)
class TensorCode:
    """Code that makes tensors of arrays: that of a dataset's samples, or any function."""

    refusals: list[Refusal]
    samples: Samples | None = None

    def possible(self, world: World) -> bool:
        return self.samples is None or self.samples.possible(world)

    def collated(self) -> Iterator[tuple[Exit, Loader]]:
        """What samples are where torch's own function collates them, with that loader."""
        for loader, own in self.samples.loaders if self.samples is not None else ():
            collates = [option.world for option in loader.option("collate_fn") if option.is_(None)]
            for end in self.samples.ends if self.samples is not None and loader.is_plain else ():
                worlds = product(product([own], [end.state.world]), product(collates, loader.worlds()))
                if any(True for _ in worlds):
                    yield end, loader


_TURNING = ("::-1", "flip", "rot90", ": -1")
_REFUSING = frozenset({"from_numpy", "as_tensor", "tensor", "ToTensor", "to_tensor", "Tensor", "FloatTensor"})


def tensor_codes(project: Project) -> Iterator[TensorCode]:
    """The samples of the datasets, and the functions in whose modules arrays are reversed and become tensors."""
    for samples in project.samples:
        yield TensorCode(samples.refusals, samples)
    attributes = Attributes(project)
    for module in project.named_modules:
        if not any(word in module.source.text for word in _TURNING):
            continue
        for scope, sites in module.calls_by_scope.items():
            names = {last_name(site.expr.func) for site in sites if isinstance(site.expr, forms.Call)}
            if scope.kind == "function" and names & _REFUSING:
                paths = Paths(project, attributes)
                paths.run(project.evaluator.any_frame(scope), State({}, {}, ANY))
                yield TensorCode(paths.refusals)


_DATASETS = ("torch.utils.data.", "torchvision.datasets.", "torchaudio.datasets.")
_NO_DATASETS = ("Loader", "Sampler")


def sample_makers(project: Project) -> Iterator[Samples]:
    """The datasets of the loaders, and the dataset classes of the named modules of which no loader is in sight."""
    attributes = Attributes(project)
    found: dict[object, Samples] = {}
    for loader in project.loaders:
        for alt in loader.datasets:
            if alt.dataset is not None:
                instance = alt.dataset.instance
                known = found.setdefault((instance.cls, instance.key), Samples(alt.dataset, attributes, []))
                known.loaders.append((loader, alt.world))
    used = {cls for samples in found.values() for cls in project.lineage(samples.dataset.cls)}
    for module in project.named_modules:
        for cls in module.classes:
            if cls not in used and any(_is_dataset(base) for base in project.external_bases(cls)):
                found[cls] = Samples(project.dataset_class(Instance(cls)), attributes, [])
    yield from found.values()


def _is_dataset(path: str) -> bool:
    return path.startswith(_DATASETS) and not path.endswith(_NO_DATASETS)
