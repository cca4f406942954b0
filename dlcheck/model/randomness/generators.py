"""Generators of random numbers that a program keeps for itself: workers inherit copies of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import library
from dlcheck.model.scopes import Link, Module, Scope, last_name
from dlcheck.model.values import ClassRef, Func, Instance, Made, Value
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.workers import WorkerCall, WorkerCode

GENERATORS = frozenset(
    {"numpy.random.default_rng", "numpy.random.RandomState", "numpy.random.mtrand.RandomState",
     "numpy.random.Generator", "random.Random", "torch.Generator"}
)  # fmt: skip
_RESEEDS = frozenset({"seed", "manual_seed", "set_state", "setstate", "__setstate__"})
_ASKS = frozenset({"get_state", "getstate", "initial_seed", "device", "bit_generator", "spawn"})
# The methods of all of them: of anything else that is called, it need not be known what it is.
_METHODS = frozenset(
    {"__setstate__", "beta", "betavariate", "binomial", "bytes", "chisquare", "choice", "choices", "clone_state",
     "dirichlet", "exponential", "expovariate", "f", "gamma", "gammavariate", "gauss", "geometric", "get_offset",
     "get_state", "getrandbits", "getstate", "graphsafe_get_state", "graphsafe_set_state", "gumbel",
     "hypergeometric", "initial_seed", "integers", "laplace", "logistic", "lognormal", "lognormvariate", "logseries",
     "manual_seed", "multinomial", "multivariate_hypergeometric", "multivariate_normal", "negative_binomial",
     "noncentral_chisquare", "noncentral_f", "normal", "normalvariate", "pareto", "paretovariate", "permutation",
     "permuted", "poisson", "power", "rand", "randbytes", "randint", "randn", "random", "random_integers",
     "random_sample", "randrange", "rayleigh", "sample", "seed", "set_offset", "set_state", "setstate", "shuffle",
     "spawn", "standard_cauchy", "standard_exponential", "standard_gamma", "standard_normal", "standard_t",
     "tomaxint", "triangular", "uniform", "vonmises", "vonmisesvariate", "wald", "weibull", "weibullvariate", "zipf"}
)  # fmt: skip
_PASSED_AS = frozenset({"generator", "random_state", "rng", "random"})


class CopiedGenerator(NamedTuple):
    """A generator made outside the workers, and a call in worker code that draws from it."""

    path: str  # of the class or function that made it
    seeded: bool
    module: Module
    at: int  # the call that made it
    link: Link
    name: str  # what it is called where it is drawn from
    drawn: WorkerCall
    world: World

    @property
    def in_module(self) -> bool:
        """Whether a module makes it: workers that import the module anew make their own."""
        return self.link.scope.kind == "module"

    @property
    def text(self) -> str:
        return self.module.line(self.at)


def copied_generators(ev: Evaluator, code: WorkerCode) -> Iterator[CopiedGenerator]:
    """The generators that workers got from their parent and draw from, and never seed anew."""
    scopes = {frame.scope for frame, _ in code.frames}
    used = list(_used(ev, code))
    reseeded = {made_at(made) for made, call, _, _ in used if last_name(call.call.func) in _RESEEDS}
    seen = set()
    for made, call, name, world in used:
        place = made_at(made)
        if place is None or place in reseeded or place in seen or last_name(call.call.func) in _ASKS:
            continue
        assert made.args is not None
        assert made.args.point is not None
        link = made.args.point.link
        if link.scope in scopes or _is_lazy(link) or _is_assigned(code, name, link.scope):
            continue
        seen.add(place)
        given = bool(made.args.positional or made.args.keywords or made.args.spreads)
        seeded = given and made.path != "torch.Generator"
        yield CopiedGenerator(made.path, seeded, *place, link, name, call, world)


class LocalGenerator(NamedTuple):
    """A generator that worker code makes for itself, seeded with something, and draws from."""

    made: Made
    seeds: list[tuple[forms.Expr, WorkerCall]]
    module: Module
    at: int
    link: Link

    @property
    def text(self) -> str:
        return self.module.line(self.at)


def local_generators(ev: Evaluator, code: WorkerCode) -> Iterator[LocalGenerator]:
    """The seeded generators that a function in worker code makes, keeps in a plain name and draws from."""
    scopes = {frame.scope for frame, _ in code.frames}
    seeds: dict[tuple[Module, int], list[tuple[forms.Expr, WorkerCall]]] = {}
    for call in code.calls:
        seed = call.call.args[0].value if call.call.args else None
        if seed is None:
            continue
        path = library.canonical(call.path)
        if path in GENERATORS and path != "torch.Generator":
            seeds.setdefault((call.site.module, call.call.at), []).append((seed, call))
        elif isinstance(call.call.func, forms.Attr) and call.call.func.name in ("manual_seed", "seed"):
            receivers = [generator(value) for value in ev.values(call.call.func.value, call.point)]
            for place in (made_at(one) for one in receivers if one is not None):
                if place is not None:
                    seeds.setdefault(place, []).append((seed, call))
    seen = set()
    for made, call, _, _ in _used(ev, code):
        place = made_at(made)
        if place is None or place in seen or place not in seeds or last_name(call.call.func) in _RESEEDS | _ASKS:
            continue
        assert made.args is not None
        assert made.args.point is not None
        link = made.args.point.link
        named = isinstance(link.stmt, forms.Assign) and all(isinstance(to, forms.Name) for to in link.stmt.targets)
        if named and link.scope in scopes:
            seen.add(place)
            yield LocalGenerator(made, seeds[place], *place, link)


def _used(ev: Evaluator, code: WorkerCode) -> Iterator[tuple[Made, WorkerCall, str, World]]:
    """The calls on generators, or with a generator, in worker code."""
    for call in code.calls:
        ev.fresh()
        func = call.call.func
        if isinstance(func, forms.Attr) and func.name in _METHODS:
            yield from _generators(ev, func.value, call)
        drawing = call.path.startswith(("random.", "torch.", "numpy."))
        for arg in call.call.args:
            if drawing and arg.name is None or arg.name in _PASSED_AS and not _calls_project(ev, call):
                yield from _generators(ev, arg.value, call)


def _calls_project(ev: Evaluator, call: WorkerCall) -> bool:
    """Whether a call is one of the project's own: what it does with a generator is seen there."""
    return any(isinstance(value, (Func, ClassRef, Instance)) for value in ev.values(call.call.func, call.point))


def _generators(ev: Evaluator, expr: forms.Expr, call: WorkerCall) -> Iterator[tuple[Made, WorkerCall, str, World]]:
    if not isinstance(expr, (forms.Name, forms.Attr, forms.Sub)):
        return
    for value, world in ev.eval(expr, call.point):
        made = generator(value)
        both = world.merge(call.world)
        if made is not None and both is not None:
            yield made, call, last_name(expr), both


def generator(value: Value) -> Made | None:
    """The generator that a value is; ``torch.Generator().manual_seed(0)`` gives the generator back."""
    if not isinstance(value, Made):
        return None
    if value.path == "torch.Generator().manual_seed":
        return value.base if isinstance(value.base, Made) else None
    return value if library.canonical(value.path) in GENERATORS else None


def made_at(made: Made) -> tuple[Module, int] | None:
    """The call that made a generator."""
    if made.args is None or made.args.call is None or made.args.point is None:
        return None
    return made.args.point.module, made.args.call.at


def _is_lazy(link: Link) -> bool:
    """Whether it is made when first asked for: then each worker makes its own."""
    if link.scope.has_decorator("property", "cached_property", "lazy_property", "cache", "lru_cache"):
        return True
    if link.scope.owner is None or link.scope.name == "__init__":
        return False
    return any(isinstance(outer.stmt, forms.If) for outer in link.outer())


def _is_assigned(code: WorkerCode, name: str, maker: Scope) -> bool:
    """Whether worker code gives the attribute or global another value."""
    if code.stores_attribute(name):
        return True
    return any(
        name in frame.scope.names & frame.scope.not_local for frame, _ in code.frames if frame.scope is not maker
    )
