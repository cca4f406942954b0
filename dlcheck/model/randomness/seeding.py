"""Seeds: where a program seeds a generator, and what the seed follows from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling, library
from dlcheck.model.flow import later_in_function, links_of, loops_around
from dlcheck.model.scopes import Link, Module, Scope, children, descend, dotted, last_name, target_names
from dlcheck.model.values import Const, External, Func, Made, Point, Thunk, Unknown, Value
from dlcheck.model.workers import WorkerCall, WorkerCode

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.project import Project

Generator = Literal["random", "numpy", "torch"]

# What a seed can follow from.  "fixed": the same in each epoch; "worker": the number of the worker;
# "state": the constant key of a freshly seeded numpy; "sample": the index or the sample itself;
# "fresh": drawn anew in each epoch; "varying": counted by the program.
Source = Literal["fixed", "worker", "state", "sample", "fresh", "varying", "unknown"]

_ALL: tuple[Generator, ...] = ("random", "numpy", "torch")

SEEDERS: dict[str, tuple[Generator, ...]] = {
    "random.seed": ("random",),
    "numpy.random.seed": ("numpy",),
    "torch.manual_seed": ("torch",),
    "torch.random.manual_seed": ("torch",),
    "pytorch_lightning.seed_everything": _ALL,
    "pytorch_lightning.utilities.seed.seed_everything": _ALL,
    "lightning.seed_everything": _ALL,
    "lightning.pytorch.seed_everything": _ALL,
    "lightning.fabric.seed_everything": _ALL,
    "lightning_fabric.seed_everything": _ALL,
    "lightning_lite.utilities.seed.seed_everything": _ALL,
    "accelerate.utils.set_seed": _ALL,
    "transformers.set_seed": _ALL,
    "transformers.trainer_utils.set_seed": _ALL,
    "ignite.utils.manual_seed": _ALL,
    "monai.utils.set_determinism": _ALL,
    "torch_geometric.seed_everything": _ALL,
    "torch_geometric.seed.seed_everything": _ALL,
    "mmengine.runner.set_random_seed": _ALL,
    "composer.utils.reproducibility.seed_all": _ALL,
    "fastai.torch_core.set_seed": _ALL,
}

# They take seeds of 32 bits.
NARROW_SEEDERS: dict[str, tuple[Generator, ...]] = {
    "numpy.random.seed": ("numpy",),
    "numpy.random.RandomState": ("numpy",),
    "numpy.random.mtrand.RandomState": ("numpy",),
}

# Whoever draws from the global generators does it through one of these.
DRAWS: tuple[tuple[str, Generator], ...] = (
    ("random.", "random"),
    ("numpy.random.", "numpy"),
    ("torch.rand", "torch"),
    ("torch.normal", "torch"),
    ("torch.bernoulli", "torch"),
    ("torch.multinomial", "torch"),
    ("torch.poisson", "torch"),
    ("torch.distributions.", "torch"),
    ("torch.nn.functional.dropout", "torch"),
)
_NOT_DRAWS = frozenset(
    {"seed", "get_state", "set_state", "getstate", "setstate", "default_rng", "RandomState", "Generator",
     "SeedSequence", "Random", "SystemRandom", "PCG64", "MT19937", "Philox", "rand_like", "manual_seed", "initial_seed"}
)  # fmt: skip
_TENSOR_DRAWS = frozenset(
    {"random_", "uniform_", "normal_", "bernoulli_", "exponential_", "cauchy_", "geometric_", "log_normal_"}
)

_FRESH = frozenset(
    {"torch.initial_seed", "torch.random.initial_seed", "torch.seed", "torch.random.seed", "os.urandom", "os.getpid",
     "os.getppid", "torch.utils.data.get_worker_info().seed", "random.getstate", "random.SystemRandom", "builtins.id",
     "numpy.random.SeedSequence", "numpy.random.default_rng", "torch.get_rng_state", "torch.random.get_rng_state",
     "torch.utils.data.get_worker_info"}
)  # fmt: skip
_FRESH_LIBRARIES = ("time.", "datetime.", "uuid.", "secrets.", "os.times")
_FIXED_CALLS = ("torch.distributed.get_rank", "torch.distributed.get_world_size", "os.environ", "os.getenv")
_PURE = frozenset(
    {"builtins.int", "builtins.abs", "builtins.hash", "builtins.min", "builtins.max", "builtins.sum", "builtins.str",
     "builtins.round", "builtins.pow", "builtins.divmod", "builtins.tuple", "builtins.list", "builtins.float",
     "numpy.uint32", "numpy.int64", "numpy.int32", "numpy.uint64", "numpy.array", "numpy.mod", "builtins.len",
     "builtins.bytes", "builtins.repr", "numpy.asarray", "torch.tensor"}
)  # fmt: skip
_PURE_METHODS = frozenset({"item", "astype", "get", "format", "encode", "hexdigest", "digest", "long", "tolist"})
# Counted by the program from epoch to epoch, or step to step.
_COUNTERS = ("epoch", "step", "iter", "time", "round", "cycle", "count")
_STATE = "numpy.random.get_state"
_WORKER_INFO = "torch.utils.data.get_worker_info()"


class Seeding(NamedTuple):
    """A call that seeds global generators, in worker code.

    The place is where the code chooses the seed: a helper that passes its parameter on is not to blame.
    """

    call: WorkerCall
    generators: tuple[Generator, ...]
    seed: forms.Expr
    module: Module
    at: int
    link: Link

    @property
    def text(self) -> str:
        return self.module.line(self.at)


def seedings(code: WorkerCode, seeders: Mapping[str, tuple[Generator, ...]] = SEEDERS) -> Iterator[Seeding]:
    """The calls in worker code that seed global generators with something."""
    scopes = {frame.scope for frame, _ in code.frames}
    for call in code.calls:
        generators = seeders.get(library.canonical(call.path))
        seed = seed_argument(call.call) if generators else None
        if generators and seed is not None:
            yield Seeding(call, generators, seed, *_chosen_at(call, seed, scopes))


def seed_argument(call: forms.Call) -> forms.Expr | None:
    """The seed of a seeding call; None where it is left to the system."""
    for arg in call.args:
        if arg.star == "" and (arg.name in (None, "seed", "a", "x")):
            return None if isinstance(arg.value, forms.Const) and arg.value.value is None else arg.value
    return None


def _chosen_at(call: WorkerCall, seed: forms.Expr, scopes: set[Scope]) -> tuple[Module, int, Link]:
    """The call of the helper, where the seed is only the helper's parameter."""
    module, at, link, point = call.site.module, call.call.at, call.site.link, call.point
    while True:
        frame = point.frame
        given = frame.args.call if frame.args is not None else None
        names = {param.name for param in frame.scope.function.params} if frame.scope.kind == "function" else set()
        if not isinstance(seed, forms.Name) or seed.id not in names or given is None or frame.site is None:
            return module, at, link
        if frame.site.frame.scope not in scopes or given.at not in {site.expr.at for site in frame.site.module.calls}:
            return module, at, link
        passed = _passed(point, seed.id)
        module, at, link, point = frame.site.module, given.at, frame.site.link, frame.site
        if passed is None:
            return module, at, link
        seed = passed


def _passed(point: Point, name: str) -> forms.Expr | None:
    """What the caller of a frame passes for a parameter."""
    args, scope = point.frame.args, point.frame.scope
    assert args is not None
    params = [param.name for param in scope.function.params]
    skip = 1 if scope.owner is not None and not scope.has_decorator("staticmethod") else 0
    thunk = calling.argument(args, name, params.index(name) - skip)
    return thunk.expr if thunk is not None else None


# -- what a seed follows from


@dataclass
class SeedSources:
    """Finds what expressions in worker code follow from.

    ``given`` is what the loader passes to the entry: the number of the worker, or a sample.
    """

    project: Project
    code: WorkerCode
    given: Source

    def __post_init__(self) -> None:
        self._scopes = {frame.scope for frame, _ in self.code.frames}
        self._open: set[tuple[object, int]] = set()
        self._known: dict[tuple[object, int], set[Source]] = {}  # for one question

    @property
    def _ev(self) -> Evaluator:
        return self.project.evaluator

    def of(self, seeding: Seeding) -> set[Source]:
        return self.sources(seeding.seed, seeding.call.point)

    def sources(self, expr: forms.Expr, point: Point) -> set[Source]:
        """What an expression follows from; "fixed" alone for a constant."""
        key = (point.frame, expr.at)
        if not self._open:
            self._known.clear()
        if key in self._known:
            return self._known[key]
        if key in self._open or len(self._open) > 40:
            return {"unknown"}
        self._open.add(key)
        try:
            found = self._known[key] = self._sources(expr, point)
            return found
        finally:
            self._open.discard(key)

    def _sources(self, expr: forms.Expr, point: Point) -> set[Source]:
        if isinstance(expr, forms.Const):
            return {"fixed"}
        if isinstance(expr, forms.Name):
            return self._name(expr.id, point)
        if isinstance(expr, forms.Attr):
            return self._attr(expr, point)
        if isinstance(expr, forms.Sub):
            return self._sub(expr, point)
        if isinstance(expr, forms.Call):
            return self._call(expr, point)
        if isinstance(expr, (forms.Binary, forms.Unary, forms.Bool, forms.Compare, forms.IfExp, forms.FString,
                             forms.Sequence)):  # fmt: skip
            return self._all(children(expr), point)
        return {"unknown"}

    def _all(self, exprs: Iterable[forms.Expr], point: Point) -> set[Source]:
        found: set[Source] = set()
        for expr in exprs:
            found |= self.sources(expr, point)
        return found or {"fixed"}

    # -- names

    def _name(self, name: str, point: Point) -> set[Source]:
        inner = point.inner
        while inner is not None:
            if isinstance(inner.form, forms.Lambda) and any(param.name == name for param in inner.form.params):
                return {self.given}
            if isinstance(inner.form, forms.Comp) and any(
                name in target_names(clause.target) for clause in inner.form.clauses
            ):
                return {"unknown"}
            inner = inner.parent
        scope = point.frame.scope
        if scope not in self._scopes:
            return self._captured(name, scope)
        if name not in scope.names or name in scope.not_local:
            return self._captured(name, scope.parent)
        return self._local(name, point)

    def _local(self, name: str, point: Point) -> set[Source]:
        """A name of a function that runs in the worker: all that is ever assigned to it."""
        frame = point.frame
        found: set[Source] = set()
        for link in links_of(frame.scope):
            value = _assigned(link.stmt, name)
            if value is not None:
                found |= self.sources(value, Point(frame, link))
            elif name in link.changes and not link.blocks:
                found.add("unknown")
            elif isinstance(link.stmt, forms.For) and name in target_names(link.stmt.target):
                found.add("varying")
        if any(param.name == name for param in frame.scope.function.params):
            found |= self._parameter(name, point)
        return found or {"unknown"}

    def _parameter(self, name: str, point: Point) -> set[Source]:
        frame = point.frame
        if frame.args is None and frame.site is None:
            param = next(param for param in frame.scope.function.params if param.name == name)
            if param.default is None:
                return {self.given}
            return self._captured_expr(param.default, frame.scope.parent)
        found: set[Source] = set()
        for thunk, _ in calling.parameter_thunks(self._ev, name, frame):
            found |= self._thunk(thunk, frame, name)
        return found or {"unknown"}

    def _thunk(self, thunk: Thunk, frame: object, name: str) -> set[Source]:
        if thunk.expr is not None and thunk.point is not None:
            if thunk.point.frame.scope in self._scopes:
                return self.sources(thunk.expr, thunk.point)
            return self._captured_expr(thunk.expr, thunk.point.frame.scope)
        values = [alt.value for alt in thunk.alts]
        if any(isinstance(value, Unknown) and value.token == ("parameter", frame, name) for value in values):
            return {self.given}
        return {"fixed"} if values and all(isinstance(value, Const) for value in values) else {"unknown"}

    def _captured(self, name: str, scope: Scope | None) -> set[Source]:
        """A name from outside the workers: what it was when they started, unless a loop changes it."""
        if _counts(name):
            return {"varying"}
        while scope is not None and (scope.kind == "class" or name not in scope.names or name in scope.not_local):
            scope = scope.parent
        if scope is None:
            return {"fixed"}  # a builtin, or what a star import gave
        for link in links_of(scope):
            if name in link.changes and (
                any(True for _ in loops_around(link)) or isinstance(link.stmt, (forms.For, forms.While))
            ):
                return {"varying"}
        if any(
            name in function.not_local and name in function.names
            for function in scope.module.functions
            if scope.kind == "module"
        ):
            return {"varying"}
        if scope.kind == "function" and any(param.name == name for param in scope.function.params):
            return self._captured_parameter(name, scope)
        return {"fixed"}

    def _captured_parameter(self, name: str, scope: Scope) -> set[Source]:
        for thunk, _ in calling.parameter_thunks(self._ev, name, self._ev.any_frame(scope)):
            if thunk.expr is not None and thunk.point is not None:
                changed = {changed for loop in loops_around(thunk.point.link) for changed in loop.changes}
                used = {dotted(part) for part in descend(thunk.expr) if isinstance(part, (forms.Name, forms.Attr))}
                if changed & used or any(_counts(one or "") for one in used):
                    return {"varying"}
        return {"fixed"}

    def _captured_expr(self, expr: forms.Expr, scope: Scope | None) -> set[Source]:
        """An expression that ran before the workers started: once, whatever it is."""
        found: set[Source] = {"fixed"}
        for part in descend(expr):
            if isinstance(part, forms.Name):
                found |= self._captured(part.id, scope)
            elif isinstance(part, forms.Attr) and _counts(part.name):
                found.add("varying")
        return found

    # -- attributes, items, calls

    def _attr(self, expr: forms.Attr, point: Point) -> set[Source]:
        if _counts(expr.name):
            return {"varying"}
        for value in self._ev.values(expr, point):
            if isinstance(value, External) and value.path.startswith(_WORKER_INFO):
                return {_of_worker_info(value.path)}
            if isinstance(value, External) and value.path.startswith("numpy.random.get_state"):
                return {"fresh"}
        base = expr.value
        if _is_self(base, point):
            return self._own_attribute(expr.name, point)
        return self.sources(base, point)

    def _own_attribute(self, name: str, point: Point) -> set[Source]:
        """``self.name``: fixed where only the constructor sets it."""
        owner = point.frame.scope.owner
        assert owner is not None
        stores = self.project.stores(owner, name)
        if not stores:
            return {"fixed"} if any(name in cls.names for cls in self.project.lineage(owner)) else {"unknown"}
        others = [store for store in stores if store.link.scope.name not in ("__init__", "__post_init__")]
        if others or any(any(True for _ in loops_around(store.link)) for store in stores):
            return {"unknown"}
        return {"unknown"} if self._is_set_from_outside(name) else {"fixed"}

    def _is_set_from_outside(self, name: str) -> bool:
        """``dataset.seed = epoch`` somewhere in the program."""
        return any(
            store.target.name == name and dotted(store.target.value) != "self" and store.link.scope.kind != "class"
            for module in self.project.loaded()
            for store in module.stores
        )

    def _sub(self, expr: forms.Sub, point: Point) -> set[Source]:
        values = list(self._ev.values(expr.value, point))
        if any(isinstance(value, Made) and value.path.startswith(_STATE) for value in values):
            deep = any(isinstance(value, Made) and value.path == f"{_STATE}[]" for value in values)
            first = isinstance(expr.index, forms.Const) and expr.index.value == 0
            return {"state"} if deep and first else {"fresh"}
        if any(isinstance(value, External) and value.path.startswith("os.environ") for value in values):
            return {"fixed"}
        return self._all((expr.value, expr.index), point)

    def _call(self, expr: forms.Call, point: Point) -> set[Source]:
        given = [arg.value for arg in expr.args]
        func = expr.func
        for value in self._ev.values(func, point):
            if isinstance(value, External):
                found = self._library_call(value.path, given, point)
                if found is not None:
                    return found
            elif isinstance(value, Func):
                return self._project_call(value, expr, point)
        if isinstance(func, forms.Attr) and func.name in _TENSOR_DRAWS:
            return {"fresh"}
        if isinstance(func, forms.Attr) and func.name in _PURE_METHODS:
            return self._all((func.value, *given), point)
        return {"unknown"}

    def _library_call(self, path: str, given: list[forms.Expr], point: Point) -> set[Source] | None:
        path = library.canonical(path)
        if path in _FRESH or path.startswith(_FRESH_LIBRARIES) or drawn_from(path) is not None:
            return {"fresh"}
        if path.startswith(_FIXED_CALLS):
            return {"fixed"}
        if path in _PURE:
            return self._all(given, point)
        if path.startswith(_STATE):
            return {"fresh"}
        if path.startswith(("hashlib.", "zlib.", "builtins.str.")):
            return self._all(given, point)
        return None

    def _project_call(self, func: Func, expr: forms.Call, point: Point) -> set[Source]:
        frame = self._ev.frame(func.scope, calling.arguments(expr, point), point, func.self_, func.closure)
        if frame.scope not in self._scopes:
            return {"unknown"}
        found: set[Source] = set()
        for link in frame.scope.returns:
            if isinstance(link.stmt, forms.Return) and link.stmt.value is not None:
                found |= self.sources(link.stmt.value, Point(frame, link))
        return found or {"unknown"}


def _assigned(stmt: forms.Stmt, name: str) -> forms.Expr | None:
    """What a statement assigns to a plain name, where it says so plainly."""
    if not isinstance(stmt, (forms.Assign, forms.Declare, forms.AugAssign)):
        return None
    targets = stmt.targets if isinstance(stmt, forms.Assign) else (stmt.target,)
    plain = any(isinstance(target, forms.Name) and target.id == name for target in targets)
    return stmt.value if plain else None


def _of_worker_info(path: str) -> Source:
    rest = path.removeprefix(f"{_WORKER_INFO}.")
    if rest == "seed":
        return "fresh"
    if rest == "id":
        return "worker"
    return "fixed" if rest == "num_workers" else "unknown"


def _counts(name: str) -> bool:
    lowered = name.lower()
    return any(word in lowered for word in _COUNTERS)


def _is_self(expr: forms.Expr, point: Point) -> bool:
    scope = point.frame.scope
    if scope.owner is None or not isinstance(expr, forms.Name) or not scope.function.params:
        return False
    return scope.function.params[0].name == expr.id and not scope.has_decorator("staticmethod")


def drawn_from(path: str) -> Generator | None:
    """The global generator that a library's function draws from."""
    path = library.canonical(path)
    name = path.rpartition(".")[2]
    if "()" in path or name in _NOT_DRAWS:
        return None
    return next((generator for prefix, generator in DRAWS if path.startswith(prefix)), None)


# -- does anybody draw afterwards?

_CHANCE = ("transform", "aug", "crop", "flip", "jitter", "rotat", "noise", "mask", "mix", "warp", "rand", "distort")


def draws_after(code: WorkerCode, seeding: Seeding) -> bool:
    """Whether random numbers are drawn after a seeding, in the same function or in what it calls."""
    scope = seeding.link.scope
    later = set(later_in_function(seeding.link)) | {seeding.link}
    for call in code.calls:
        here: Point | None = call.point
        while here is not None and here.link.scope is not scope:
            here = here.frame.site
        if here is not None and here.link in later and call.call.at != seeding.call.call.at and _may_draw(call):
            return True
    return False


def may_draw(code: WorkerCode, generators: Iterable[Generator]) -> bool:
    """Whether worker code may draw from one of these generators, itself or in what cannot be read."""
    wanted = set(generators)
    ev = code.project.evaluator
    for call in code.calls:
        drawn = drawn_from(call.path)
        if (drawn in wanted or drawn is None and _may_draw(call)) and ev.guards(call.site.link, call.point.frame):
            return True
    return code.mentions(_OTHER_DATASETS)


# Samples that come from these are made by anybody's code.
_OTHER_DATASETS = frozenset({"dataset", "datasets", "_dataset", "base_dataset", "ds", "_data", "source"})


def _may_draw(call: WorkerCall) -> bool:
    """Whether a call draws random numbers, or is called like something that does."""
    if drawn_from(call.path) is not None:
        return True
    func = call.call.func
    name = last_name(func).lower()
    if name in _TENSOR_DRAWS:
        return True
    opaque = call.path == "" or "()" in call.path or call.path.startswith(("torchvision.transforms", "albumentations."))
    return opaque and any(word in name for word in _CHANCE)


RESTORES = frozenset({"setstate", "set_state", "set_rng_state", "fork_rng", "isolate_rng", "temp_seed", "local_seed"})


def restores_state(scope: Scope) -> bool:
    """Whether a function saves the state of a generator and puts it back."""
    return any(
        last_name(site.expr.func) in RESTORES
        for site in scope.module.calls_by_scope.get(scope, ())
        if isinstance(site.expr, forms.Call)
    )


_EVALUATION = ("val", "test", "eval", "train", "mode", "split", "phase", "determin", "debug", "augment", "fix")


def is_chosen(link: Link) -> bool:
    """Whether a condition on the kind of run decides that a statement runs: ``if self.split == "test"``."""
    return any(
        isinstance(outer.stmt, forms.If)
        and any(any(word in text for word in _EVALUATION) for text in _words_of(outer.stmt.test))
        for outer in link.outer()
    )


def _words_of(test: forms.Expr) -> Iterator[str]:
    """The names and texts in a condition, in lower case."""
    for part in descend(test):
        if isinstance(part, (forms.Name, forms.Attr)):
            yield last_name(part).lower()
        elif isinstance(part, forms.Const) and isinstance(part.value, str):
            yield part.value.lower()


# -- seeds that are too big


def is_wide(ev: Evaluator, expr: forms.Expr, point: Point, depth: int = 0) -> bool:
    """Whether a value is the 63 bit seed of a worker, still uncut."""
    if depth > 8:
        return False
    if isinstance(expr, forms.Binary):
        return expr.op in ("+", "-", "|", "^") and (
            is_wide(ev, expr.left, point, depth + 1) or expr.op != "-" and is_wide(ev, expr.right, point, depth + 1)
        )
    if isinstance(expr, forms.IfExp) and _asks_for_worker(expr.test):
        return any(is_wide(ev, side, point, depth + 1) for side in (expr.body, expr.orelse))
    if isinstance(expr, forms.Call) and dotted(expr.func) in ("int", "abs") and len(expr.args) == 1:
        return is_wide(ev, expr.args[0].value, point, depth + 1)
    if isinstance(expr, forms.Name) and expr.id in point.frame.scope.names and point.inner is None:
        values = [value for link in links_of(point.frame.scope) if (value := _assigned(link.stmt, expr.id)) is not None]
        if values:
            changing = [link for link in links_of(point.frame.scope) if expr.id in link.changes and not link.blocks]
            if any(not isinstance(link.stmt, forms.Assign) for link in changing) or len(changing) != len(values):
                return False
            others = [value for value in values if not isinstance(value, forms.Const)]
            return len(others) == 1 and is_wide(ev, others[0], point, depth + 1)
        thunks = calling.parameter_thunks(ev, expr.id, point.frame) if point.frame.args is not None else []
        passed = [(thunk.expr, thunk.point) for thunk, _ in thunks]
        return bool(passed) and all(
            inner is not None and where is not None and is_wide(ev, inner, where, depth + 1) for inner, where in passed
        )
    values_ = list(ev.values(expr, point))
    return bool(values_) and all(_is_worker_seed(value) for value in values_)


def _asks_for_worker(test: forms.Expr) -> bool:
    """``info is None``, ``info is not None``, ``info``: in a worker the answer is known."""
    if isinstance(test, forms.Compare):
        sides = (test.left, *test.rights)
        return len(sides) == 2 and any(isinstance(side, forms.Const) and side.value is None for side in sides)
    return isinstance(test, forms.Name)


def _is_worker_seed(value: Value) -> bool:
    if isinstance(value, Made):
        return value.path in ("torch.initial_seed", "torch.random.initial_seed")
    return isinstance(value, External) and value.path == f"{_WORKER_INFO}.seed"


# -- loops


def is_invariant_in(loop: Link, expr: forms.Expr) -> bool:
    """Whether an expression has the same value in each round of a loop, as far as one can see."""
    for part in descend(expr):
        if isinstance(part, forms.Name) and (part.id in loop.changes or _counts(part.id)):
            return False
        if isinstance(part, forms.Attr) and (dotted(part) in loop.changes or _counts(part.name)):
            return False
        if isinstance(part, forms.Call) and dotted(part.func) not in ("int", "abs", "hash", "min", "max"):
            return False
    return not isinstance(expr, (forms.Lambda, forms.Comp))
