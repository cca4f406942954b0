"""DataLoaders: where each is built, and what its options are in which world."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling, conditions, library, loops
from dlcheck.model.call_sites import called_name_at
from dlcheck.model.data import samples
from dlcheck.model.data.samples import Cost, CudaSample, CudaUse
from dlcheck.model.datasets import DatasetAlt, datasets_of, with_wrapped
from dlcheck.model.processes.changes import Change, changes
from dlcheck.model.rebuilding import changed_by_calls
from dlcheck.model.scopes import Link, Module, Scope, Site, descend, dotted, last_name
from dlcheck.model.values import (
    UNKNOWN,
    Alt,
    Arguments,
    Const,
    External,
    Func,
    Instance,
    LoaderRef,
    Made,
    Managed,
    Mapping,
    Point,
    Thunk,
    Undefined,
    Value,
)
from dlcheck.model.workers import WorkerCode, worker_code
from dlcheck.model.worlds import ANY, World

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.loops import BatchLoop
    from dlcheck.model.project import Project
    from dlcheck.model.transfers import Transfer


class Construction(NamedTuple):
    """How a loader reaches torch's constructor: the library class, the arguments, the world."""

    path: str
    args: Arguments
    world: World


class OptionAlt(NamedTuple):
    """One possible value of an option: the world, and where it is written (None: torch's default)."""

    value: Value
    world: World
    module: Module | None
    at: int

    @property
    def given(self) -> bool:
        return self.module is not None

    def is_(self, constant: object) -> bool:
        """Whether it is this constant; never of an unknown."""
        return isinstance(self.value, Const) and self.value == Const(constant)

    @property
    def positive(self) -> bool:
        """Whether it is a number above zero."""
        value = self.value
        if isinstance(value, Made):
            return value.path in library.CPU_COUNTS or value.path == "positive"
        return isinstance(value, Const) and isinstance(value.value, (int, float)) and value.value > 0

    @property
    def truthy(self) -> bool:
        return isinstance(self.value, Const) and bool(self.value.value)

    @property
    def falsy(self) -> bool:
        return isinstance(self.value, Const) and not self.value.value


@dataclass(eq=False)
class Loader:
    """A DataLoader: one constructor call as one chain of callers sees it."""

    project: Project
    ref: LoaderRef
    loops: list[BatchLoop] = field(default_factory=list)
    framework: str = ""  # that took it over
    trained_by: str = ""  # the framework whose trainer trains on its batches

    @property
    def module(self) -> Module:
        return self.ref.point.module

    @property
    def call(self) -> forms.Call:
        assert self.ref.args.call is not None
        return self.ref.args.call

    @property
    def link(self) -> Link:
        return self.ref.point.link

    @property
    def name(self) -> str:
        """How people call it: the name it is assigned to, else its class."""
        stmt = self.link.stmt
        if isinstance(stmt, forms.Assign) and stmt.value is self.call:
            return dotted(stmt.targets[0]) or self.class_name
        return self.class_name

    @property
    def class_name(self) -> str:
        return last_name(self.call.func) or "DataLoader"

    @property
    def name_at(self) -> int:
        """The node of the constructor's name."""
        return called_name_at(self.call)

    @property
    def constructor(self) -> tuple[str, int]:
        """What tells this constructor call from others, whoever calls."""
        return (self.module.name, self.call.at)

    @property
    def path(self) -> str:
        """The library class."""
        found = constructions(self.project.evaluator, self.ref)
        return found[0].path if found else ""

    @property
    def is_plain(self) -> bool:
        """Whether its batches are those of torch's own DataLoader."""
        return bool(self.path) and not self.path.startswith(library.SPECIAL_LOADERS)

    def worlds(self) -> list[World]:
        """The worlds in which the constructor is reached."""
        ev = self.project.evaluator
        return ev.guards(self.link, self.ref.point.frame)

    def option(self, name: str) -> list[OptionAlt]:
        """The alternatives for an option; torch's default where it is not given."""
        compute = partial(options, self.project.evaluator, self.ref, name)
        return self.project.once(("option", self.ref.key, name), compute)

    def pinning(self, wanted: bool) -> list[OptionAlt]:
        """The alternatives in which batches are (or are not) pinned; none where that is unknown."""
        ev = self.project.evaluator
        out = []
        for alt in self.option("pin_memory"):
            if isinstance(alt.value, Const) or isinstance(alt.value, Made) and alt.value.path in library.SYMBOLS:
                for truth, world in conditions.truth_of(ev, alt.value, ("pin", self.ref.key)):
                    both = alt.world.merge(world)
                    if truth is wanted and both is not None:
                        out.append(alt._replace(world=both))
        return out

    def copies(self) -> list[tuple[Transfer, Alt]]:
        """The copies of its batches to a device."""
        return self.project.copies_of(self.ref)

    @cached_property
    def datasets(self) -> list[DatasetAlt]:
        return datasets_of(self)

    @cached_property
    def held_datasets(self) -> list[DatasetAlt]:
        """Its datasets, and those of the project that they index in their workers."""
        return with_wrapped(self.project, self.datasets)

    @cached_property
    def worker_codes(self) -> list[tuple[WorkerCode, str, World]]:
        """What runs in its workers: the code, the name of the class or function that it starts from, the world."""
        return list(samples.worker_codes(self))

    @cached_property
    def _cuda_uses(self) -> list[CudaUse]:
        return list(samples.cuda_uses(self))

    def cuda_in_workers(self) -> list[CudaUse]:
        """Where its samples or batches are put on the GPU while they are made."""
        return self._cuda_uses

    @cached_property
    def cuda_samples(self) -> list[CudaSample]:
        """The CUDA tensors that its samples or batches are."""
        return list(samples.cuda_samples(self))

    @cached_property
    def yields_cuda(self) -> bool:
        """Whether its batches may be on the GPU already."""
        return samples.on_gpu_already(self)

    @cached_property
    def _sample_costs(self) -> list[Cost]:
        return list(samples.sample_costs(self))

    def sample_costs(self) -> list[Cost]:
        """Why its samples take time to make."""
        return self._sample_costs

    def never_ends(self) -> bool:
        """Whether one iterator serves the whole run: an endless sampler or stream."""
        values = [option.value for name in ("sampler", "batch_sampler") for option in self.option(name)]
        values += [alt.dataset.instance for alt in self.datasets if alt.dataset and alt.dataset.is_iterable]
        return any(samples.is_endless(self.project, value) for value in values)

    def spawns(self) -> bool:
        """Whether the start method is given, and it is not fork."""
        return any(
            isinstance(option.value, Const) and option.value.value in ("spawn", "forkserver")
            for option in self.option("multiprocessing_context")
        )

    @cached_property
    def _dataset_changes(self) -> list[Change]:
        return changes(self)

    def dataset_changes(self) -> list[Change]:
        """What the program changes in the dataset between epochs: persistent workers do not see it."""
        return self._dataset_changes

    def worker_init_may_touch_dataset(self) -> bool:
        """Whether a ``worker_init_fn`` may split the dataset, or open its files anew."""
        for option in self.option("worker_init_fn"):
            if option.is_(None):
                continue
            if not isinstance(option.value, (Func, Instance)):
                return True
            if worker_code(self.project, option.value).mentions(samples.WORKER_WORDS | {"dataset"}):
                return True
        return False

    def rebuilding_loop(self) -> Link | None:
        """The epoch loop that builds this loader anew in each round although nothing differs."""
        child = self.link
        for outer in self.link.outer():
            if isinstance(outer.stmt, forms.If) or child.slot.startswith(("handler", "orelse")):
                return None
            if isinstance(outer.stmt, (forms.For, forms.While)):
                return outer if self._is_invariant_in(outer) else None
            child = outer
        return None

    def _is_invariant_in(self, loop: Link) -> bool:
        if isinstance(loop.stmt, forms.For) and not _counts(loop.stmt.iter):
            return False
        if loops.runs_once(self.project.evaluator, loop):
            return False
        changed = {name.partition(".")[0] for name in loop.changes} - {"self"}
        changed |= {name for name in loop.changes if name.startswith("self.")}
        changed |= _called_upon(loop)
        for arg in self.call.args:
            for expr in descend(arg.value):
                if isinstance(expr, forms.Name) and expr.id in changed or dotted(expr) in changed:
                    return False
                if isinstance(expr, forms.Call) and last_name(expr.func) in _RANDOM:
                    return False
        if loop not in self._loops_around_its_use() or self.dataset_changes():
            return False
        # Only now: to follow the calls takes longer.
        changed = changed_by_calls(self.project, loop)
        parts = (part for arg in self.call.args for part in descend(arg.value))
        return not any(dotted(part) in changed for part in parts)

    def _loops_around_its_use(self) -> Iterator[Link]:
        """The loops in whose rounds batches are drawn, be it by a function that they call."""
        for other in self.loops:
            yield other.link
            yield from loops.enclosing_loops(self.project, other.link, other.inner, other.world)
        for call in self.project.next_calls:
            if call.ref.key == self.ref.key:
                yield from loops.enclosing_loops(self.project, call.site.link, call.site.inner, call.world)


_RANDOM = frozenset(
    {"randperm", "permutation", "shuffle", "sample", "choice", "randint", "random_split", "next", "pop"}
)


def _called_upon(loop: Link) -> set[str]:
    """The names on which a loop calls a method for its effect: ``curriculum.advance()``."""
    return {
        dotted(site.expr.func.value) or ""
        for site in loop.scope.module.calls_in(loop)
        if isinstance(site.link.stmt, forms.Do)
        and site.link.stmt.value is site.expr
        and isinstance(site.expr, forms.Call)
        and isinstance(site.expr.func, forms.Attr)
    }


def _counts(expr: forms.Expr) -> bool:
    """``range(n)``, ``trange(n)``, ``tqdm(range(n))``, ``count()``: a loop over numbers."""
    if not isinstance(expr, forms.Call):
        return False
    if last_name(expr.func) in ("range", "trange", "count"):
        return True
    return last_name(expr.func) in ("tqdm", "enumerate", "track") and bool(expr.args) and _counts(expr.args[0].value)


def constructions(ev: Evaluator, ref: LoaderRef) -> list[Construction]:
    """How the loader reaches torch's constructor; through ``super().__init__`` for a subclass."""
    if isinstance(ref.maker, External):
        return [Construction(ref.maker.path, ref.args, ANY)]
    own = Instance(ref.maker, ref.args, ref.key, ref.point)
    return list(_through(ev, ref.maker, ref.args, ref.point, own, 0))


def _through(
    ev: Evaluator, cls: Scope, args: Arguments, point: Point, own: Instance, depth: int
) -> Iterator[Construction]:
    init = ev.project.method(cls, "__init__")
    library_base = next((path for path in ev.project.external_bases(cls) if library.loader_class(path)), "")
    if init is None:
        yield Construction(library_base, args, ANY)
        return
    frame = ev.frame(init, args, point, own)
    for link, call in calling.super_calls(init):
        here = Point(frame, link)
        inner = calling.arguments(call, here)
        for value, world in ev.eval(call.func, here):
            if isinstance(value, External) and value.path.endswith(".__init__"):
                path = value.path.removesuffix(".__init__")
                if library.loader_class(path):
                    plain = not (isinstance(call.func, forms.Attr) and isinstance(call.func.value, forms.Call))
                    bound = inner._replace(positional=inner.positional[1:]) if plain else inner
                    for guard in ev.guards(link, frame):
                        both = world.merge(guard)
                        if both is not None:
                            yield Construction(path, bound, both)
            elif isinstance(value, Func) and depth < 5 and value.scope.owner is not None:
                for found in _through(ev, value.scope.owner, inner, here, own, depth + 1):
                    both = world.merge(found.world)
                    if both is not None:
                        yield found._replace(world=both)


def options(ev: Evaluator, ref: LoaderRef, name: str) -> list[OptionAlt]:
    """The alternatives for an option of a loader."""
    out: list[OptionAlt] = []
    for construction in constructions(ev, ref):
        for alt in _option(ev, construction.path, construction.args, name):
            both = alt.world.merge(construction.world)
            if both is not None:
                value = UNKNOWN if name == "batch_size" and _is_to_be_given(alt.value) else alt.value
                out.append(alt._replace(value=value, world=both))
    return out or [OptionAlt(UNKNOWN, ANY, None, 0)]


def _is_to_be_given(value: Value) -> bool:
    """Whether a default is the gap that users fill: nobody switches batching off by leaving the size out."""
    return value == Const(None) and isinstance(value, Const) and value.free is not None


def option_alts(ev: Evaluator, ref: LoaderRef, name: str) -> list[Alt]:
    return [Alt(alt.value, alt.world) for alt in options(ev, ref, name)]


def _option(ev: Evaluator, path: str, args: Arguments, name: str) -> Iterator[OptionAlt]:
    order = library.LOADER_CLASSES.get(path, library.LOADER_PARAMETERS)
    return argument(ev, args, name, library.LOADER_DEFAULTS.get(name, ...), order)


def argument(
    ev: Evaluator, args: Arguments, name: str, default: object = ..., order: Sequence[str] = ()
) -> Iterator[OptionAlt]:
    """The alternatives for an argument: by its name, its place in ``order``, out of ``**`` dicts, or the default.

    Without a ``default`` it is unknown where it is not given.
    """
    found = calling.keyword(args, name)
    if found is None and name in order:
        found = calling.positional(args, order.index(name))
    if found is not None:
        yield from _written(ev, found, args, name)
        return
    if any(starred for _, starred in args.positional):
        yield OptionAlt(UNKNOWN, ANY, None, 0)
        return
    worlds = [ANY]
    for spread in args.spreads:
        missing: list[World] = []
        for value, world in ev.force(spread):
            joint = [both for before in worlds if (both := before.merge(world)) is not None]
            thunk = value.get(name) if isinstance(value, Mapping) else None
            if thunk is not None:
                for alt in _written(ev, thunk, args, name):
                    yield from (alt._replace(world=both) for before in joint if (both := before.merge(alt.world)))
            elif isinstance(value, Mapping) and not value.open:
                missing += joint
            else:
                yield from (OptionAlt(UNKNOWN, before, None, 0) for before in joint)
        worlds = missing
    for world in worlds:
        yield OptionAlt(UNKNOWN if default is ... else Const(default), world, None, 0)


def _written(ev: Evaluator, thunk: Thunk, args: Arguments, name: str) -> Iterator[OptionAlt]:
    module, at = _place(thunk, args, name)
    for value, world in ev.force(thunk):
        # What the user would have to choose is no fault of the code: a flag decides conditions only.
        open_ = isinstance(value, Undefined) or isinstance(value, Const) and value.chosen
        yield OptionAlt(UNKNOWN if open_ else value, world, module, at)


def _place(thunk: Thunk, args: Arguments, name: str) -> tuple[Module | None, int]:
    """Where an option is written: the argument, the entry of a dict, or the value alone."""
    if thunk.expr is None or thunk.point is None:
        point = args.point
        arg = _arg_of(args, name)
        if point is not None and arg is not None:
            return point.module, arg
        return (point.module if point else None), args.call.at if args.call else 0
    module = thunk.point.module
    written = module.arguments.get(thunk.expr.at)
    return module, thunk.expr.at if written is None else written


def _arg_of(args: Arguments, name: str) -> int | None:
    if args.call is None:
        return None
    return next((arg.at for arg in args.call.args if arg.name == name), None)


# -- finding them

_NOT_LOADERS = frozenset({"load", "torch_load", "load_state_dict", "safe_load", "load_from_checkpoint", "loads"})


def loader_calls(project: Project) -> Sequence[Site]:
    """Calls that may build a loader: of DataLoader under any name."""
    return project.once(("loader calls",), lambda: tuple(_loader_calls(project)))


def _loader_calls(project: Project) -> Iterator[Site]:
    names = _constructor_names(project)
    for module in project.loaded():
        called = module.calls_by_name
        yield from module.calls_to(*[name for name in called if _may_construct(name, names)])


def _may_construct(name: str, names: set[str]) -> bool:
    return name in names or ("oader" in name and name not in _NOT_LOADERS)


def _constructor_names(project: Project) -> set[str]:
    names = {path.rpartition(".")[2] for path in library.LOADER_CLASSES}
    for name in tuple(names):
        names |= project.aliases(name)
    while True:
        more = {cls.name for cls in project.classes() if _may_be_loader(cls, names) and project.is_loader_class(cls)}
        if more <= names:
            break
        names |= more
    for module in project.loaded():
        for stmt in module.once("new names", _new_names):
            if _names_constructor(stmt.value, names):
                names |= {last_name(target) for target in stmt.targets} - {""}
    return names


def _new_names(module: Module) -> list[forms.Assign]:
    """The assignments that may give a function or class another name."""
    stmts = (link.stmt for link in module.links.values())
    kinds = (forms.Name, forms.Attr, forms.IfExp, forms.Call)
    return [stmt for stmt in stmts if isinstance(stmt, forms.Assign) and isinstance(stmt.value, kinds)]


def _may_be_loader(cls: Scope, names: set[str]) -> bool:
    node = cls.node
    bases = [last_name(base.value) for base in node.bases] if isinstance(node, forms.Class) else []
    return any(base in names or "oader" in base for base in bases)


def _names_constructor(expr: forms.Expr, names: set[str]) -> bool:
    if isinstance(expr, forms.IfExp):
        return _names_constructor(expr.body, names) or _names_constructor(expr.orelse, names)
    if isinstance(expr, forms.Call) and last_name(expr.func) == "partial" and expr.args:
        return last_name(expr.args[0].value) in names
    return last_name(expr) in names


def is_fallback(link: Link) -> bool:
    """In an ``except`` clause: what older versions need, after the real thing failed."""
    return any(here.slot.startswith("handler") for here in (link, *link.outer()))


def built_loaders(project: Project) -> Iterator[LoaderRef]:
    """Each constructor call of a loader once, as any caller sees it."""
    ev = project.evaluator
    seen = set()
    for site in loader_calls(project):
        if is_fallback(site.link):
            continue
        ev.fresh()
        call = site.expr
        assert isinstance(call, forms.Call)
        for value in ev.values(call, project.point(site)):
            value = value.value if isinstance(value, Managed) else value
            if isinstance(value, LoaderRef) and value.args.call is call and value.key not in seen:
                seen.add(value.key)
                yield value
