"""Tensors that carry an autograd graph, and what keeps them longer than the step that made them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model.flow import is_inside, links_in, links_of, loops_around
from dlcheck.model.loops import called_scopes
from dlcheck.model.scopes import Link, Scope, Site, descend, dotted, expressions, last_name, same_place, target_names
from dlcheck.model.training.evaluation import NO_GRADIENTS
from dlcheck.model.training.steps import Region, StepLoop, always_runs, function_region, goes_backward
from dlcheck.model.values import External, Func, Made, Many, Unknown

if TYPE_CHECKING:
    from dlcheck.facts.forms import Expr

# Methods of a tensor that give a tensor with the same graph behind it.
_KEEPING = frozenset(
    {"mean", "sum", "cpu", "cuda", "to", "clone", "float", "double", "half", "bfloat16", "view", "reshape", "squeeze",
     "unsqueeze", "flatten", "mul", "div", "add", "sub", "neg", "abs", "exp", "log", "sqrt", "pow", "contiguous",
     "requires_grad_", "type", "scale", "max", "min", "norm"}
)  # fmt: skip

# Attributes of a tensor that are free of its graph.
_FREE_ATTRIBUTES = frozenset({"data", "grad", "shape", "dtype", "device", "ndim", "requires_grad", "is_cuda"})

# What in a function's body shows that it takes care of the graph itself.
_CARE = frozenset({"item", "detach", "detach_", "data", "no_grad", "inference_mode", "numpy", "tolist", "is_tensor"})


_NUMBERS = frozenset({"float", "int", "len", "round"})


class Kept(NamedTuple):
    """A statement that keeps, beyond its step, a value with its graph: ``name`` keeps ``value``.

    ``exprs`` are the expressions that carry a graph there.

    ``how`` is "sum", "list", or "meter" where a method of the project does it; ``emptied`` where the loop itself
    starts ``name`` anew now and then.
    """

    region: Region
    link: Link
    at: int
    name: str
    value: str
    how: str
    emptied: bool
    backward: Site
    exprs: tuple[Expr, ...]


def kept_graphs(loop: StepLoop) -> Iterator[Kept]:
    """What each round of a loop adds to something that outlives the round, with the graph of the round's loss."""
    for region in loop.regions():
        yield from _Keeper(loop, region).find()


MAX_CALLS = 3  # followed one inside the other, for the loss that they return


class _Keeper:
    """Follows, statement by statement, which local names carry the graph of a loss that went backward."""

    def __init__(self, loop: StepLoop, region: Region, callers: tuple[Scope, ...] = ()) -> None:
        self.loop = loop
        self.callers = callers  # the functions on the way to the region
        self.project = loop.project
        self.region = region
        self.order = {link: number for number, link in enumerate(region.links)}
        self.losses: dict[str, tuple[int, Site]] = {}  # the names of losses: the last place that goes backward

    def find(self) -> Iterator[Kept]:
        for site, names in self._backward():
            at = self.order.get(_within(site.link, self.order), -1)
            for name in names:
                if not self._is_counted(name):
                    self.losses[name] = (at, site)
        self._add_terms()
        carrying: dict[str, Site] = {}
        for link in self.region.links:
            yield from self._kept_by(link, carrying)
            self._follow(link, carrying)

    def _is_counted(self, name: str) -> bool:
        """Whether a name begins as a number to which numbers are added: who goes backward from it has no graph."""
        begins, added = False, []
        for link in self.region.links:
            stmt = link.stmt
            if isinstance(stmt, forms.AugAssign) and stmt.op in ("+", "-") and dotted(stmt.target) == name:
                added.append(stmt.value)
            elif isinstance(stmt, forms.Assign) and any(dotted(target) == name for target in stmt.targets):
                if not _is_number(stmt.value):
                    return False
                begins = True
        return begins and bool(added) and all(map(_is_number, added))

    def _backward(self) -> Iterator[tuple[Site, set[str]]]:
        """The calls in the region that go backward, each with the names of what it goes backward from."""
        links = set(self.region.links)
        for site in self.region.module.calls:
            if site.link not in links:
                continue
            if goes_backward(site):
                yield site, self._origins(backward_of(site))
            else:
                yield from self._through_function(site)

    def _through_function(self, site: Site) -> Iterator[tuple[Site, set[str]]]:
        """``loss_scaler(loss, optimizer)``: a function of the project that goes backward from its parameter."""
        call = site.expr
        assert isinstance(call, forms.Call)
        if not call.args or not isinstance(call.func, (forms.Name, forms.Attr)):
            return
        for scope in called_scopes(self.project, site):
            names = backward_parameters(scope)
            if names:
                passed = [arg for name in names if (arg := _argument(scope, call, name)) is not None]
                yield site, {name for arg in passed for name in self._origins(arg)}

    def _origins(self, expr: Expr | None) -> set[str]:
        """The local names behind ``scaler.scale(loss / n)``, and those that they are other names of."""
        names = set(carriers(expr))
        for link in self.region.links:
            if isinstance(link.stmt, forms.With):  # with amp.scale_loss(loss, optimizer) as scaled:
                for item in link.stmt.items:
                    if not names & set(target_names(item.target)):
                        continue
                    if isinstance(item.value, forms.Call) and item.value.args:
                        names |= set(carriers(item.value.args[0].value))
        return names

    def _add_terms(self) -> None:
        """What a loss is the sum of carries the same graph: ``loss = content + 0.1 * style``."""
        for _ in range(2):
            for link in self.region.links:
                stmt = link.stmt
                if isinstance(stmt, forms.Assign) and len(stmt.targets) == 1:
                    name = dotted(stmt.targets[0])
                    known = self.losses.get(name or "")
                    if known is not None:
                        for term in _terms(stmt.value):
                            self.losses.setdefault(term, known)

    def _follow(self, link: Link, carrying: dict[str, Site]) -> None:
        """What carries a graph after a statement."""
        stmt = link.stmt
        if isinstance(stmt, forms.Assign):
            for target in stmt.targets:
                self._bind(target, stmt.value, link, carrying)
        elif isinstance(stmt, forms.Declare) and stmt.value is not None:
            self._bind(stmt.target, stmt.value, link, carrying)
        elif isinstance(stmt, (forms.For, forms.With, forms.Delete)):
            targets = stmt.targets if isinstance(stmt, forms.Delete) else ()
            for name in [stmt.target] if isinstance(stmt, forms.For) else targets:
                for bound in target_names(name):
                    carrying.pop(bound, None)

    def _bind(self, target: Expr, value: Expr, link: Link, carrying: dict[str, Site]) -> None:
        for name in target_names(target):
            if isinstance(target, forms.Sub):
                continue
            for part in [part for part in carrying if part.startswith(f"{name}.")]:
                del carrying[part]
            for part, (last, site) in self.losses.items():  # outputs = net(batch), where outputs.loss goes backward
                if part.startswith(f"{name}.") and self.order[link] <= last:
                    carrying[part] = site
            known = self.losses.get(name)
            if known is not None and self.order[link] <= known[0] and not _is_weight(value):
                carrying[name] = known[1]
                continue
            source = next((carrying[inner] for inner in carriers(value) if inner in carrying), None)
            if source is None:
                source = self._returned(target, name, value, link)
            if source is not None:
                carrying[name] = source
            else:
                carrying.pop(name, None)

    def _returned(self, target: Expr, name: str, value: Expr, link: Link) -> Site | None:
        """``loss = train_step(batch)``, where that returns a loss from which it went backward."""
        if not isinstance(value, forms.Call) or not isinstance(value.func, (forms.Name, forms.Attr)):
            return None
        scopes = list(called_scopes(self.project, Site(value, link, None)))
        if len(scopes) != 1 or scopes[0] in self.callers or len(self.callers) >= MAX_CALLS:
            return None
        found = returned_losses(self.loop, scopes[0], self.callers)
        if isinstance(target, forms.Sequence) and name:
            number = next((at for at, item in enumerate(target.items) if name in target_names(item)), -1)
            return found.get(number)
        return found.get(None)

    # -- what keeps

    def _kept_by(self, link: Link, carrying: dict[str, Site]) -> Iterator[Kept]:
        stmt = link.stmt
        if isinstance(stmt, forms.AugAssign) and stmt.op in ("+", "-"):
            listed = isinstance(stmt.value, (forms.Sequence, forms.Comp))
            how = "list" if listed else "sum"
            items = stmt.value.items if isinstance(stmt.value, forms.Sequence) else (stmt.value,)
            yield from self._kept(link, stmt.at, stmt.target, items, how, carrying)
        elif isinstance(stmt, forms.Assign) and len(stmt.targets) == 1 and isinstance(stmt.value, forms.Binary):
            target, value = stmt.targets[0], stmt.value
            if value.op == "+" and same_place(target, value.left):
                yield from self._kept(link, stmt.at, target, (value.right,), "sum", carrying)
            elif value.op == "+" and same_place(target, value.right):
                yield from self._kept(link, stmt.at, target, (value.left,), "sum", carrying)
        elif isinstance(stmt, forms.Do) and isinstance(stmt.value, forms.Call):
            call = stmt.value
            if not isinstance(call.func, forms.Attr):
                return
            if call.func.name in ("append", "appendleft", "add"):
                items = tuple(inner for arg in call.args for inner in _items(arg.value))
                if self._keeps_all(call.func, link):
                    yield from self._kept(link, call.at, call.func.value, items, "list", carrying)
            else:
                yield from self._kept_by_method(link, call, carrying)

    def _keeps_all(self, method: forms.Attr, link: Link) -> bool:
        """Whether ``x.append`` is a list's: not that of ``deque(maxlen=100)``, nor of what makes numbers of it."""
        values = list(self.project.evaluator.values(method.value, self.project.point(Site(method.value, link, None))))
        # An entry of ``defaultdict(list)`` is a list.
        others = [value for value in values if isinstance(value, (External, Made)) and "defaultdict" not in value.path]
        if others:
            return False
        if method.name == "add":  # what else has a method of this name mostly adds up numbers
            return any(isinstance(value, Many) for value in values)
        chain = dotted(method.value) or ""
        return chain.count(".") < 2 or not all(isinstance(value, Unknown) for value in values)

    def _kept_by_method(self, link: Link, call: forms.Call, carrying: dict[str, Site]) -> Iterator[Kept]:
        """``meter.update(loss)``, where the project's meter adds it up as it is."""
        passed = [(arg, name) for arg in call.args for name in carriers(arg.value) if name in carrying]
        if not passed:
            return
        for scope in called_scopes(self.project, Site(call, link, None)):
            for arg, name in passed:
                parameter = _parameter(scope, call, arg)
                if parameter and scope.owner is not None and _adds_up(scope, parameter):
                    owner = self.project.evaluator.values(call.func, self.project.point(Site(call, link, None)))
                    if any(isinstance(value, Func) for value in owner):
                        exprs = tuple(dict.fromkeys(arg.value for arg, _ in passed))
                        at, owned = call.at, scope.owner.name
                        yield Kept(self.region, link, at, owned, name, "meter", False, carrying[name], exprs)
                        return

    def _kept(
        self, link: Link, at: int, target: Expr, values: tuple[Expr, ...], how: str, carrying: dict[str, Site]
    ) -> Iterator[Kept]:
        base = target
        while isinstance(base, (forms.Sub, forms.Attr)) and dotted(base) is None:
            base = base.value
        name = dotted(base)
        value = next((inner for expr in values for inner in carriers(expr) if inner in carrying), None)
        source = carrying[value] if value is not None else None
        exprs = tuple(expr for expr in values if any(inner in carrying for inner in carriers(expr)))
        for expr in values if source is None else ():
            source = source or self._returned(target, "", expr, link)
            value = f"{last_name(expr.func)}(...)" if isinstance(expr, forms.Call) else value
            exprs = values
        if name is None or value is None or source is None or name == value or name in self.losses:
            return
        if how == "sum" and _without_gradients(link, self.region):
            return
        emptied = self._lifetime(name, link)
        if emptied is None or self._goes_backward_later(name) or self._is_reset_outside(name):
            return
        text = self.region.module.line(target.at)
        yield Kept(self.region, link, at, text, value, how, emptied, source, exprs)

    def _lifetime(self, name: str, link: Link) -> bool | None:
        """Whether the region starts ``name`` anew: None in every round, True sometimes, False never."""
        if self.region.loop is None and "." not in name and name not in self.region.scope.not_local:
            return None  # a local name of a function ends with it
        emptied = False
        for other in self.region.links:
            if other is link or not _rebinds(other, name):
                continue
            if always_runs(other, self.region.loop) or is_inside(link, other):
                return None
            if any(around in loops_around(other) for around in loops_around(link) if around is not self.region.loop):
                return None
            emptied = True
        return emptied

    def _goes_backward_later(self, name: str) -> bool:
        """Whether anything that ``name`` flows into goes backward: then the graph is what is wanted."""
        scope = self.region.scope
        wanted: set[str] = set()
        for site in scope.module.calls_by_scope.get(scope, ()):
            if goes_backward(site):
                wanted.update(_mentioned(backward_of(site)))
        for _ in range(3):
            for link in links_of(scope):
                stmt = link.stmt
                if not isinstance(stmt, forms.Assign) or isinstance(stmt.value, forms.Const):
                    continue
                if wanted & {bound for target in stmt.targets for bound in target_names(target)}:
                    wanted |= set(_mentioned(stmt.value))
        return name in wanted

    def _is_reset_outside(self, name: str) -> bool:
        """Whether this is the inner loop of a step, and the step around it starts ``name`` anew."""
        loop = self.region.loop
        if loop is None or self.loop.is_over_loader():
            return False
        over_loaders = {other.link for other in self.project.loops}
        for outer in loops_around(loop):
            goes = any(goes_backward(s) and not is_inside(s.link, loop) for s in loop.scope.module.calls_in(outer))
            if goes or outer in over_loaders:
                return any(_rebinds(link, name) for link in links_in(outer) if not is_inside(link, loop))
        return False


# -- expressions


def carriers(expr: Expr | None) -> Iterator[str]:
    """The names whose graph an expression still carries: ``loss`` of ``loss * n``, none of ``loss.item()``."""
    if isinstance(expr, forms.Name):
        yield expr.id
    elif isinstance(expr, forms.Attr):
        if expr.name not in _FREE_ATTRIBUTES:
            name = dotted(expr)
            if name is not None:
                yield name
    elif isinstance(expr, forms.Sub):
        yield from carriers(expr.value)
    elif isinstance(expr, forms.Binary):
        yield from carriers(expr.left)
        yield from carriers(expr.right)
    elif isinstance(expr, forms.Unary) and expr.op in "+-":
        yield from carriers(expr.value)
    elif isinstance(expr, forms.Call) and isinstance(expr.func, forms.Attr) and expr.func.name in _KEEPING:
        if expr.func.name == "scale" or last_name(expr.func.value) in ("torch", "th"):
            for arg in expr.args[:1]:
                yield from carriers(arg.value)
        else:
            yield from carriers(expr.func.value)


def backward_of(site: Site) -> Expr | None:
    """What a call goes backward from: ``loss`` of ``loss.backward()`` and of ``engine.backward(loss)``."""
    call = site.expr
    assert isinstance(call, forms.Call)
    assert isinstance(call.func, forms.Attr)
    takes_loss = call.args and call.args[0].name is None and call.args[0].star == ""
    if call.func.name == "manual_backward" or takes_loss and not _is_gradient(call.args[0].value):
        return call.args[0].value if call.args else None
    return call.func.value


def backward_names(site: Site) -> Iterator[str]:
    """The names that a call goes backward from, by itself or in a function of the project."""
    assert isinstance(site.expr, forms.Call)
    if goes_backward(site):
        yield from carriers(backward_of(site))
    else:
        for arg in site.expr.args:
            yield from carriers(arg.value)


def _is_gradient(expr: Expr) -> bool:
    """``y.backward(torch.ones_like(y))``, ``y.backward(gradient)``: the argument is no loss."""
    return (
        not isinstance(expr, (forms.Name, forms.Attr, forms.Binary))
        or "loss" not in last_name(expr).lower()
        and (not isinstance(expr, forms.Binary))
    )


def _is_weight(expr: Expr) -> bool:
    """``len(part) / max(len(whole), 1)``: a number that a loss is multiplied by, and no part of its graph."""
    return not isinstance(expr, forms.Const) and _is_number(expr)  # ``loss = 0`` is where a sum begins


def _is_number(expr: Expr) -> bool:
    if isinstance(expr, forms.Binary):
        return _is_number(expr.left) and _is_number(expr.right)
    if isinstance(expr, forms.IfExp):  # ``x if isinstance(x, float) else float(x)``
        asks = any(isinstance(part, forms.Name) and part.id == "isinstance" for part in descend(expr.test))
        return (any if asks else all)(map(_is_number, (expr.body, expr.orelse)))
    if isinstance(expr, forms.Call):
        called = last_name(expr.func)
        if called in ("min", "max"):
            return bool(expr.args) and all(_is_number(arg.value) for arg in expr.args)
        return called == "item" or isinstance(expr.func, forms.Name) and called in _NUMBERS
    return isinstance(expr, forms.Const) and isinstance(expr.value, (int, float))


def _terms(expr: Expr) -> Iterator[str]:
    """The names that a sum adds up, with or without a weight."""
    if isinstance(expr, forms.Binary) and expr.op in ("+", "-"):
        yield from _terms(expr.left)
        yield from _terms(expr.right)
    elif isinstance(expr, forms.Binary) and expr.op in ("*", "/"):
        names = [name for side in (expr.left, expr.right) for name in carriers(side)]
        yield from names if len(names) == 1 else [name for name in names if "loss" in name.lower()]
    elif isinstance(expr, forms.Name):
        yield expr.id
    elif isinstance(expr, forms.Sub):  # losses["box"] + losses["class"]
        yield from (name for name in carriers(expr) if "loss" in name.lower())
    elif isinstance(expr, forms.Call) and last_name(expr.func) == "sum" and len(expr.args) == 1:
        yield from _summed(expr.args[0].value)


def _summed(expr: Expr) -> Iterator[str]:
    """The dict or list of losses behind ``sum(losses.values())``, ``sum(loss for loss in losses.values())``."""
    if isinstance(expr, forms.Comp) and len(expr.clauses) == 1 and dotted(expr.value) == dotted(expr.clauses[0].target):
        expr = expr.clauses[0].iter
    if isinstance(expr, forms.Call) and isinstance(expr.func, forms.Attr) and expr.func.name == "values":
        expr = expr.func.value
    name = dotted(expr)
    if name is not None and "loss" in name.lower():
        yield name


def _items(expr: Expr) -> tuple[Expr, ...]:
    """The parts of a tuple, list or dict that is put away as one."""
    if isinstance(expr, forms.Sequence):
        return expr.items
    if isinstance(expr, forms.Dict):
        return tuple(entry.value for entry in expr.entries)
    return (expr,)


def _mentioned(expr: Expr | None) -> Iterator[str]:
    for inner in descend(expr) if expr is not None else ():
        name = dotted(inner)
        if name is not None:
            yield name


# -- functions


def backward_parameters(scope: Scope) -> set[str]:
    """The parameters of a function from which it goes backward."""
    params = {param.name for param in scope.function.params}
    found: set[str] = set()
    for site in scope.module.calls_by_scope.get(scope, ()):
        if goes_backward(site) and next(loops_around(site.link), None) is None:
            found |= set(carriers(backward_of(site)))
    return params & found


def returned_losses(loop: StepLoop, scope: Scope, callers: tuple[Scope, ...] = ()) -> dict[int | None, Site]:
    """Which of a function's results carry the graph of a loss from which it went backward; None for the whole."""
    keeper = _Keeper(loop, function_region(scope), (*callers, scope))
    for site, names in keeper._backward():
        if next(loops_around(site.link), None) is None:
            for name in names:
                keeper.losses[name] = (keeper.order.get(_within(site.link, keeper.order), -1), site)
    if not keeper.losses:
        return {}
    keeper._add_terms()
    carrying: dict[str, Site] = {}
    found: dict[int | None, Site] = {}
    for link in keeper.region.links:
        if isinstance(link.stmt, forms.Return) and link.stmt.value is not None:
            value = link.stmt.value
            if isinstance(value, forms.Sequence):
                results: list[tuple[int | None, Expr]] = list(enumerate(value.items))
            else:
                results = [(None, value)]
            found.update(
                (number, carrying[name]) for number, item in results for name in carriers(item) if name in carrying
            )
        keeper._follow(link, carrying)
    return found


def _argument(scope: Scope, call: forms.Call, name: str) -> Expr | None:
    """The argument of a call that a parameter of the called function gets."""
    found = next((arg.value for arg in call.args if arg.name == name), None)
    if found is not None:
        return found
    params = [param.name for param in scope.function.params if param.kind in ("positional", "normal")]
    skip = 1 if scope.owner is not None and not scope.has_decorator("staticmethod") else 0
    number = params.index(name) - skip if name in params else -1
    given = [arg for arg in call.args if arg.name is None]
    if not 0 <= number < len(given) or any(arg.star for arg in given[: number + 1]):
        return None
    return given[number].value


def _parameter(scope: Scope, call: forms.Call, arg: forms.Arg) -> str:
    names = [param.name for param in scope.function.params]
    return next((name for name in names if _argument(scope, call, name) is arg.value), "")


def _adds_up(scope: Scope, name: str) -> bool:
    """Whether a method adds its parameter to an attribute as it is: no ``item``, no ``detach`` anywhere."""
    links = list(links_of(scope))
    for link in links:
        for expr in expressions(link.stmt):
            for inner in descend(expr):
                if last_name(inner) in _CARE or isinstance(inner, forms.Name) and inner.id in ("float", "isinstance"):
                    return False
    own = scope.function.params[0].name
    carrying = {name}
    for link in links:
        stmt = link.stmt
        if isinstance(stmt, forms.Assign) and carrying & set(carriers(stmt.value)):
            carrying |= {bound for target in stmt.targets for bound in target_names(target)}
        if isinstance(stmt, forms.AugAssign) and stmt.op == "+" and carrying & set(carriers(stmt.value)):
            return (dotted(stmt.target) or "").startswith(f"{own}.")
        if isinstance(stmt, forms.Do) and isinstance(stmt.value, forms.Call) and last_name(stmt.value.func) == "append":
            target = dotted(stmt.value.func.value) if isinstance(stmt.value.func, forms.Attr) else None
            if (target or "").startswith(f"{own}.") and any(carrying & set(carriers(a.value)) for a in stmt.value.args):
                return not _drops(scope, target or "")
    return False


def _drops(scope: Scope, name: str) -> bool:
    """Whether a method also takes away from what it appends to, or its class made it a bounded queue."""
    attribute = name.partition(".")[2]
    owner = scope.owner
    stores = [store for store in scope.module.stores if store.target.name == attribute and owner is not None]
    if any(isinstance(store.value, forms.Call) and last_name(store.value.func) == "deque" for store in stores):
        return True
    return any(
        last_name(site.expr.func) in ("pop", "popleft", "clear")
        for site in scope.module.calls_by_scope.get(scope, ())
        if isinstance(site.expr, forms.Call)
    )


# -- statements


def _within(link: Link, order: dict[Link, int]) -> Link:
    return link if link in order else next((outer for outer in link.outer() if outer in order), link)


def _rebinds(link: Link, name: str) -> bool:
    """Whether a statement gives ``name``, or the object that it is an attribute of, a value from elsewhere."""
    stmt = link.stmt
    if isinstance(stmt, forms.Assign):
        for target in stmt.targets:
            if any(bound == name or name.startswith(f"{bound}.") for bound in target_names(target)):
                if isinstance(target, forms.Sub):
                    return False
                return name not in set(_mentioned(stmt.value)) or _replaces(stmt.value, name)
    if isinstance(stmt, forms.For):
        return name in target_names(stmt.target)
    if isinstance(stmt, forms.Do) and isinstance(stmt.value, forms.Call) and isinstance(stmt.value.func, forms.Attr):
        return stmt.value.func.name in ("clear", "pop", "popleft", "reset") and dotted(stmt.value.func.value) == name
    return isinstance(stmt, forms.Delete) and any(name in target_names(target) for target in stmt.targets)


def _replaces(expr: Expr, name: str) -> bool:
    """``total = total.detach()``, ``kept = kept[-100:]``: the graphs so far are let go."""
    return name not in set(carriers(expr)) or isinstance(expr, forms.Sub)


def _without_gradients(link: Link, region: Region) -> bool:
    """Whether a statement runs without gradients: what it adds up then has no graph."""
    if any(last_name(_called_name(decorator)) in NO_GRADIENTS for decorator in region.scope.decorators()):
        return True
    return any(
        isinstance(outer.stmt, forms.With)
        and any(
            isinstance(item.value, forms.Call) and last_name(item.value.func) in {*NO_GRADIENTS, "set_grad_enabled"}
            for item in outer.stmt.items
        )
        for outer in link.outer()
    )


def _called_name(expr: Expr) -> Expr:
    return expr.func if isinstance(expr, forms.Call) else expr
