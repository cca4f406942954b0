"""Random splits of a data set, and what makes them the same at every start."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.call_sites import CallSite
from dlcheck.model.flow import loops_around
from dlcheck.model.scopes import Link, Module, Scope, Site, descend, dotted, expressions, last_name
from dlcheck.model.values import Const, External, Made, Unknown, Value

if TYPE_CHECKING:
    from dlcheck.model.project import Project

RANDOM_SPLIT = "torch.utils.data.random_split"

# Library functions that split or permute: whose random numbers they take, and the argument that seeds them.
_SPLITTERS = {
    RANDOM_SPLIT: ("torch", "generator", 2),
    "sklearn.model_selection.train_test_split": ("numpy", "random_state", None),
}
_PERMUTATIONS = {"torch.randperm": "torch", "numpy.random.permutation": "numpy"}
_SHUFFLES = {"numpy.random.shuffle": "numpy", "random.shuffle": "random"}
_SUBSETS = frozenset({"torch.utils.data.Subset", "torch.utils.data.SubsetRandomSampler"})

_SEEDING = {"torch.manual_seed": "torch", "torch.random.manual_seed": "torch", "torch.set_rng_state": "torch",
            "torch.random.set_rng_state": "torch", "numpy.random.seed": "numpy", "numpy.random.set_state": "numpy",
            "random.seed": "random", "random.setstate": "random"}  # fmt: skip
# Functions that seed everything, by their names, where they are no function of the project.
_SEEDERS = ("seed_everything", "set_seed", "seed_all", "fix_seed", "setup_seed", "init_seed", "random_seed",
            "manual_seed", "set_seeds", "seed_torch", "fix_random", "set_determinism", "LightningCLI")  # fmt: skip
_NOT_ALL = ("torch.cuda.", "torch.mps.", "torch.xpu.", "torch.Generator().", "numpy.", "random.", "tensorflow.")
_SAVING = frozenset({"save", "savez", "dump", "dumps", "to_csv", "savetxt", "write_text", "savez_compressed"})


@dataclass(frozen=True, eq=False)
class RandomSplit(CallSite):
    """A call that parts a data set at random, without a seed of its own."""

    project: Project
    site: Site
    source: str  # whose random numbers it takes: torch, numpy, random
    names: frozenset[str]  # of the parts, and of what they are made of

    def is_repeatable(self) -> bool:
        """Whether every start gives the same parts: the program seeds the generator, or keeps the parts in a file."""
        for word in ("manual_seed", "seed_everything", "set_seed"):
            self.project.mention(word)
        return any(
            _seeds(self.project, site, self.source) and not self._comes_first(site) or self._is_saved(site)
            for module in program_of(self.project, self.module)
            for site in module.calls
        )

    def _comes_first(self, site: Site) -> bool:
        """Whether the split is made before a call further down in the same function, or in the same script."""
        same = site.link.scope is self.link.scope
        return same and site.link.stmt.at > self.link.stmt.at and next(loops_around(self.link), None) is None

    def _is_saved(self, site: Site) -> bool:
        call = site.expr
        if not isinstance(call, forms.Call) or last_name(call.func) not in _SAVING or site.module is not self.module:
            return False
        return any(
            last_name(part) == "indices" or (dotted(part) or "") in self.names
            for arg in call.args
            for part in descend(arg.value)
        )

    def differs_between_ranks(self) -> bool:
        """Whether each rank of a distributed run makes the split for itself."""
        program = program_of(self.project, self.module)
        sites = (site.expr for module in program for site in module.calls)
        names = {last_name(call.func) for call in sites if isinstance(call, forms.Call)}
        if "init_process_group" not in names or names & {"broadcast_object_list", "broadcast"}:
            return False
        return not _spawns(self.link.scope)

    def outlives_a_restart(self) -> bool:
        """Whether the program can go on from a checkpoint: it loads the state of an optimizer."""
        return any(
            isinstance(site.expr, forms.Call)
            and isinstance(site.expr.func, forms.Attr)
            and site.expr.func.name == "load_state_dict"
            and "optim" in last_name(site.expr.func.value).lower()
            for module in program_of(self.project, self.module)
            for site in module.calls
        )


def _spawns(scope: Scope) -> bool:
    """Whether a function starts the ranks itself: what it has made by then is the same for all."""
    return any(
        isinstance(site.expr, forms.Call) and last_name(site.expr.func) in ("spawn", "start_processes", "Process")
        for site in scope.module.calls_by_scope.get(scope, ())
    )


def program_of(project: Project, module: Module) -> set[Module]:
    """The loaded modules that run together with one: what it imports, who imports it, and what these import."""
    program = set(project.imports.neighbours(module))
    for other in project.loaded():
        if other not in program and module in project.imports.neighbours(other):
            program |= project.imports.neighbours(other)
    return program


def _seeds(project: Project, site: Site, source: str) -> bool:
    """Whether a call seeds the random numbers of ``source``."""
    call = site.expr
    assert isinstance(call, forms.Call)
    name = last_name(call.func)
    known = any(name == path.rpartition(".")[2] for path in _SEEDING)
    if not known and not any(word in name for word in _SEEDERS):
        return False
    for value in project.evaluator.values(call.func, project.point(site)):
        if isinstance(value, External):
            if value.path in _SEEDING:
                return _SEEDING[value.path] == source
            if not value.path.startswith(_NOT_ALL) and any(word in name for word in _SEEDERS):
                return True
        elif isinstance(value, Unknown) and name != "manual_seed" and any(word in name for word in _SEEDERS):
            return True
    return False


# -- finding them


def random_splits(project: Project) -> Iterator[RandomSplit]:
    """The unseeded random splits of the modules that findings are for."""
    for module in project.named_modules:
        if "torch" not in module.libraries:
            continue
        parts: dict[Hashable, list[tuple[Site, Made]]] = defaultdict(list)
        for site in module.calls:
            call = site.expr
            assert isinstance(call, forms.Call)
            for value in _called(project, site):
                if value.path in _SPLITTERS and not _is_seeded(project, site, value.path):
                    yield RandomSplit(project, site, _SPLITTERS[value.path][0], _names(site.link))
                elif value.path in _SHUFFLES and _is_parted(project, site):
                    yield RandomSplit(project, site, _SHUFFLES[value.path], _names(site.link) | _shuffled(call))
                elif value.path in _SUBSETS:
                    for made in _permuted(project, site):
                        assert isinstance(made.key, tuple)
                        parts[made.key[0]].append((site, made))
        for found in parts.values():
            yield from _of_permutation(project, module, found)


_NAMES = frozenset(path.rpartition(".")[2] for path in (*_SPLITTERS, *_SHUFFLES, *_SUBSETS))


def _called(project: Project, site: Site) -> list[External]:
    call = site.expr
    assert isinstance(call, forms.Call)
    name = last_name(call.func)
    if name not in project.once(("splitters",), lambda: _NAMES.union(*map(project.aliases, _NAMES))):
        return []
    values = project.evaluator.values(call.func, project.point(site))
    return [value for value in values if isinstance(value, External)][:1]


def _names(link: Link) -> frozenset[str]:
    return frozenset(link.changes) if isinstance(link.stmt, forms.Assign) else frozenset()


def _shuffled(call: forms.Call) -> frozenset[str]:
    return frozenset({dotted(call.args[0].value) or ""})


def _is_seeded(project: Project, site: Site, path: str) -> bool:
    """Whether the call itself has a seed or a generator, or splits in order."""
    call = site.expr
    assert isinstance(call, forms.Call)
    _, name, number = _SPLITTERS[path]
    args = calling.arguments(call, project.point(site))
    if args.spreads or any(starred for _, starred in args.positional) and number is not None:
        return True
    given = calling.argument(args, name, number)
    if given is not None and any(_is_seed(alt.value) for alt in project.evaluator.force(given)):
        return True
    ordered = calling.keyword(args, "shuffle")
    if ordered is None or path == RANDOM_SPLIT:
        return False
    return any(alt.value != Const(True) for alt in project.evaluator.force(ordered))


def _is_seed(value: Value) -> bool:
    return not (isinstance(value, Const) and value.value is None)


def _is_parted(project: Project, site: Site) -> bool:
    """Whether what a call shuffles is cut into parts after it, for subsets of a data set."""
    call = site.expr
    assert isinstance(call, forms.Call)
    name = dotted(call.args[0].value) if call.args else None
    scope = site.link.scope
    if name is None or not isinstance(site.link.stmt, forms.Do):
        return False
    parts = {
        part.at
        for link in scope.module.links.values()
        if link.scope is scope and link.stmt.at > site.link.stmt.at
        for root in expressions(link.stmt)
        for part in descend(root)
        if isinstance(part, forms.Sub) and isinstance(part.index, forms.Slice) and dotted(part.value) == name
    }
    subsets = [
        other for other in scope.module.calls_by_scope.get(scope, ()) if _called(project, other) and other is not site
    ]
    return len(parts) >= 2 and any(value.path in _SUBSETS for other in subsets for value in _called(project, other))


def _permuted(project: Project, site: Site) -> Iterator[Made]:
    """The slices of a random permutation that ``Subset`` or a sampler of a subset gets."""
    call = site.expr
    assert isinstance(call, forms.Call)
    args = calling.arguments(call, project.point(site))
    given = calling.argument(args, "indices", 1 if last_name(call.func) == "Subset" else 0)
    for alt in project.evaluator.force(given) if given is not None else ():
        value = alt.value
        while isinstance(value, Made) and "()." in value.path and isinstance(value.base, Made):
            value = value.base  # permutation[:n].tolist()
        if isinstance(value, Made) and value.path.removesuffix("[:]") in _PERMUTATIONS and value.path.endswith("[:]"):
            yield value


def _of_permutation(project: Project, module: Module, found: list[tuple[Site, Made]]) -> Iterator[RandomSplit]:
    """The split that two or more slices of one permutation make."""
    made = found[0][1]
    args = made.args
    if len({part.key for _, part in found}) < 2 or args is None or args.call is None or args.point is None:
        return
    if args.point.module is not module or calling.keyword(args, "generator") is not None or args.spreads:
        return
    names = frozenset().union(*(_names(site.link) for site, _ in found), _names(args.point.link))
    source = _PERMUTATIONS[made.path.removesuffix("[:]")]
    yield RandomSplit(project, Site(args.call, args.point.link, None), source, names)
