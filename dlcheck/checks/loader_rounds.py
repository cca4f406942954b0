"""Whether one loader for all rounds of a loop gives what a new one for each round gives, and no more than that."""

from __future__ import annotations

from collections.abc import Iterable

from dlcheck.checks.name_uses import bound_before, imported, lies_within, mentions, uses
from dlcheck.checks.tensor_uses import parameter_of
from dlcheck.facts import forms
from dlcheck.model import library
from dlcheck.model.flow import is_inside, links_in, links_of
from dlcheck.model.loaders import Loader
from dlcheck.model.scopes import Link, children, descend, dotted, last_name
from dlcheck.model.values import External, Func

# Calls that give the same for the same numbers, and what torch makes that has no state of its own.
_NUMBERS = frozenset({"int", "str", "float", "bool", "range", "min", "max"})
_STATELESS = frozenset({"partial", "device", "is_available", "Subset", "RandomSampler", "SequentialSampler"})
_PLAIN = (forms.Sequence, forms.Star, forms.Binary, forms.Unary, forms.Bool, forms.Compare, forms.IfExp,
          forms.FString, forms.Dict)  # fmt: skip
# What may be done with a loader again and again.
_LOOKED_AT = frozenset({"dataset", "batch_size", "num_workers", "drop_last"})
_ITERATING = frozenset({"len", "iter", "enumerate", "zip", "list", "tqdm", "track", "islice"})
_MAX_DEPTH = 4


def gives_the_same(loader: Loader, loop: Link, names: Iterable[str]) -> bool:
    """Whether the loop can do with one loader: what it is given stays, and nothing is kept in it from round to round.

    ``names`` are those that the loader has in the loop.
    """
    if loader.path != library.DATALOADER or not isinstance(loader.ref.maker, External):
        return False
    if any(option.given and not option.is_(None) for option in loader.option("generator")):
        return False
    if not all(option.falsy for option in loader.option("persistent_workers")):
        return False
    rounds = _Rounds(loader, loop)
    return rounds.arguments_stay() and not rounds.touches_before() and all(map(rounds.is_only_iterated, names))


class _Rounds:
    def __init__(self, loader: Loader, loop: Link) -> None:
        self.loader = loader
        self.loop = loop
        self.project = loader.project
        self.scope = loop.scope
        self.module = loader.module
        self.exact = not any(self.project.calls_named(name) for name in ("setattr", "globals", "exec", "vars"))

    # -- what it is given

    def arguments_stay(self) -> bool:
        return all(
            self._spreads_the_same(arg.value) if arg.star else self._stays(arg.value) for arg in self.loader.call.args
        )

    def _spreads_the_same(self, expr: forms.Expr) -> bool:
        """Whether ``**options`` is a dict of this function, which the loop does not mention otherwise."""
        if isinstance(expr, (forms.Dict, forms.Sequence)):
            return self._stays(expr)
        if not isinstance(expr, forms.Name) or self.scope.kind != "function":
            return False
        number = sum(1 for link in links_in(self.loop) for _ in uses(link, expr.id))
        made = [link.stmt for link in links_of(self.scope) if expr.id in link.changes and not link.blocks]
        literal = len(made) == 1 and isinstance(made[0], forms.Assign) and isinstance(made[0].value, forms.Dict)
        return literal and number == 1 and not self._is_shared(expr.id)

    def _stays(self, expr: forms.Expr) -> bool:
        if isinstance(expr, (forms.Const, forms.Lambda)):
            return True
        if isinstance(expr, forms.Name):
            return self._name_stays(expr.id)
        if isinstance(expr, forms.Attr):
            return dotted(expr) is not None and self._attribute_stays(expr.name) and self._stays(expr.value)
        if isinstance(expr, forms.Call):
            return self._is_pure(expr) and all(not arg.star and self._stays(arg.value) for arg in expr.args)
        return isinstance(expr, _PLAIN) and all(map(self._stays, children(expr)))

    def _is_pure(self, call: forms.Call) -> bool:
        if isinstance(call.func, forms.Name) and call.func.id in _NUMBERS:
            return call.func.id not in self.scope.names | self.module.scope.names
        return last_name(call.func) in _STATELESS and (dotted(call.func) or "").partition(".")[0] in imported(
            self.module
        )

    def _name_stays(self, name: str) -> bool:
        if name in self.loop.changes or any(name in scope.not_local for scope in self.module.functions):
            return False
        return name in self._locals or self._attribute_stays(name)

    @property
    def _locals(self) -> set[str]:
        return self.scope.names - self.scope.not_local if self.scope.kind == "function" else set()

    def _attribute_stays(self, name: str) -> bool:
        """Whether no function that the loop may call sets an attribute of this name, or computes it."""
        if not self.exact:
            return False
        for module in self.project.loaded():
            for store in module.stores:
                made = store.link.scope.name == "__init__" or store.link.scope.kind == "module"
                here = store.link.scope is self.scope and not is_inside(store.link, self.loop)
                if store.target.name == name and not made and not here:
                    return False
            for scope in module.functions:
                if name in scope.not_local:
                    return False
                computed = len(scope.decorators()) > scope.has_decorator("staticmethod", "classmethod")
                if scope.name == name and scope.owner is not None and computed:
                    return False
        return True

    def touches_before(self) -> bool:
        """Whether a call in front of the loader may prepare what it is given."""
        given = {name for arg in self.loader.call.args for part in descend(arg.value) if (name := dotted(part))}
        roots = {name.partition(".")[0] for name in given}
        plain = {*self.module.scope.functions, *self.module.scope.classes}
        plain |= imported(self.module)
        far = roots - self._locals - plain
        before = self.loop.blocks["body"][: self.loader.link.index] if self.loader.link.parent is self.loop else []
        for call in (site.expr for link in before for site in self.module.calls_in(link)):
            assert isinstance(call, forms.Call)
            if far & self.module.scope.names:
                return True
            touched = [arg.value for arg in call.args]
            touched += [call.func.value] if isinstance(call.func, forms.Attr) else []
            for name in (dotted(part) or "" for expr in touched for part in descend(expr)):
                if name and any(_is_part(name, one) or _is_part(one, name) for one in given) and name not in plain:
                    return True
        return False

    # -- what is done with it

    def _is_shared(self, name: str) -> bool:
        """Whether another function of the module may mean the same name."""
        if name in self.scope.not_local:
            return True
        return mentions(self.scope, name)

    def is_only_iterated(self, name: str) -> bool:
        if self._is_shared(name):
            return False
        if bound_before(self.loop, name):
            return False  # without a round, it would be that
        links = (self.loop, *links_in(self.loop))
        return all(
            self._iterates(use, around, link, 0)
            for link in links
            if link is not self.loader.link
            for use, around in uses(link, name)
        )

    def _iterates(self, use: forms.Name, around: forms.Form, link: Link, depth: int) -> bool:
        if isinstance(around, forms.For):
            return around.iter is use
        if isinstance(around, forms.Comp):
            return any(clause.iter is use for clause in around.clauses)
        if isinstance(around, forms.Attr):
            return around.name in _LOOKED_AT
        if isinstance(around, forms.Compare):
            return all(op in ("is", "is not") for op in around.ops)
        if not isinstance(around, forms.Call) or around.func is use:
            return False
        site = next((site for site in link.scope.module.calls_in(link) if site.expr is around), None)
        values = [] if site is None else list(self.project.evaluator.values(around.func, self.project.point(site)))
        functions = [value for value in values if isinstance(value, Func)]
        if not functions:
            return last_name(around.func) in _ITERATING
        return len(functions) == len(values) and all(self._leaves(one, around, use, depth) for one in functions)

    def _leaves(self, function: Func, call: forms.Call, use: forms.Name, depth: int) -> bool:
        """Whether a function only iterates what a call gives it."""
        scope = function.scope
        name = parameter_of(function, call, use)
        if depth >= _MAX_DEPTH or name is None or scope.decorators():
            return False
        inner = (other for other in scope.module.functions if other is not scope and lies_within(other, scope))
        if any(True for other in inner for link in links_of(other) for _ in uses(link, name)):
            return False
        return all(
            self._iterates(found, around, link, depth + 1)
            for link in links_of(scope)
            for found, around in uses(link, name)
            if not (isinstance(around, forms.Assign) and found in around.targets)
        )


def _is_part(name: str, whole: str) -> bool:
    return name == whole or name.startswith(f"{whole}.")
