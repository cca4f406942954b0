"""Where a training step makes the host wait for the GPU because it asks for a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.loops import called_scopes, callers_in
from dlcheck.model.scopes import Link, Module, Scope, Site, descend, dotted, last_name, target_names
from dlcheck.model.training.gradients import backward_of, carriers
from dlcheck.model.training.steps import Region, StepLoop, certain_expressions, function_region, goes_backward
from dlcheck.model.transfers import may_not_block, targets_of
from dlcheck.model.values import Const, External, Func, Instance, Made, Moved, Unknown
from dlcheck.model.worlds import ANY

if TYPE_CHECKING:
    from dlcheck.facts.forms import Expr
    from dlcheck.model.project import Project

# Methods of a tensor that give its value to the host.
_READING = frozenset({"item", "tolist", "numpy", "cpu"})

# What a tensor knows of itself without the GPU.
_SHAPES = frozenset(
    {"shape", "size", "dim", "ndim", "numel", "dtype", "device", "is_cuda", "requires_grad", "data_ptr", "keys",
     "element_size", "nelement", "type", "get_device", "backward", "logits_dict", "is_sparse"}
)  # fmt: skip

# Functions that take the value of a tensor that they are given.
_CONVERSIONS = frozenset({"builtins.float", "builtins.int", "builtins.bool", "builtins.print", "builtins.round"})
_LOGGING = frozenset({"add_scalar", "set_postfix", "set_postfix_str", "set_description"})

# Functions that pass nothing of a tensor on.
_OPAQUE = frozenset({"len", "str", "repr", "type", "id", "isinstance", "hasattr", "range", "print", "open", "format"})


class Sync(NamedTuple):
    """An expression that makes the host wait: ``text`` names it."""

    module: Module
    expr: Expr
    link: Link
    region: Region

    @property
    def at(self) -> int:
        return self.expr.at

    @property
    def text(self) -> str:
        return self.module.line(self.at)

    @property
    def shown_at(self) -> int:
        """The node to show: a whole ``print(...)`` or ``log(...)``, which is what one would do less often."""
        stmt = self.link.stmt
        return stmt.value.at if isinstance(stmt, forms.Do) and isinstance(stmt.value, forms.Call) else self.at


def syncs(loop: StepLoop) -> list[Sync]:
    """The expressions in every round of a loop that make the host wait for the GPU, in the order of the source.

    Empty where the step waits anyway, or where nothing shows that it runs on a GPU.
    """
    if loop.is_long() or not on_gpu(loop) or _waits_anyway(loop):
        return []
    found: list[Sync] = []
    _Region(loop, loop.body, set(), 0, found).run()
    return sorted(found, key=lambda sync: (sync.module is not loop.module, sync.region.loop is None, sync.at))


def on_gpu(loop: StepLoop) -> bool:
    """Whether the program trains on a GPU in some world: a copy to CUDA in the loop's module, or in a caller's."""
    modules = {loop.module, *(region.module for region in loop.regions())}
    scope = loop.link.scope
    if scope.kind == "function":
        modules |= {point.module for point in callers_in(loop.project, scope, ANY)}
    return any(moves_to_gpu(loop.project, module) for module in modules)


def moves_to_gpu(project: Project, module: Module) -> bool:
    """Whether a module copies anything to a CUDA device."""
    for site in module.calls:
        call = site.expr
        assert isinstance(call, forms.Call)
        if isinstance(call.func, forms.Attr) and call.func.name in ("cuda", "to"):
            project.evaluator.fresh()
            args = calling.arguments(call, project.point(site))
            if any(kind == "cuda" for kind, _ in targets_of(project.evaluator, call.func.name, args)):
                return True
    return False


def _waits_anyway(loop: StepLoop) -> bool:
    """Whether a gradient scaler, which reads whether gradients are finite, or a stall waits in each step."""
    ev = loop.project.evaluator
    for site, _ in loop.calls_each_round():
        call = site.expr
        assert isinstance(call, forms.Call)
        if isinstance(call.func, forms.Attr) and call.func.name == "step" and len(call.args) == 1:
            for value in ev.values(call.func.value, loop.project.point(site)):
                if isinstance(value, Made) and value.path.endswith("GradScaler") and _is_enabled(loop.project, value):
                    return True
    return False


def _is_enabled(project: Project, scaler: Made) -> bool:
    if scaler.args is None:
        return True
    enabled = calling.keyword(scaler.args, "enabled")
    if enabled is None:
        return not scaler.args.spreads
    values = [alt.value for alt in project.evaluator.force(enabled)]
    return all(isinstance(value, Const) and bool(value.value) and value.free is None for value in values)


class _Region:
    """The tensors on the GPU in a region, by name: the loss, what it is made of by the network, what is made of it."""

    def __init__(
        self, loop: StepLoop, region: Region, names: set[str], depth: int, found: list[Sync], quiet: bool = False
    ) -> None:
        self.loop = loop
        self.project = loop.project
        self.region = region
        self.names = set(names)
        self.depth = depth
        self.found = found
        self.quiet = quiet
        self.networks = network_names(region.module)

    def run(self) -> bool:
        """Find the syncs; whether what the region, a function, returns may be a tensor on the GPU."""
        self._seed()
        certain = set(self.region.certain())
        returns = False
        for link in self.region.links:
            if link in certain and not self.quiet:
                self._look(link)
            if isinstance(link.stmt, forms.Return) and link.stmt.value is not None:
                returns = returns or self._carries(link.stmt.value, link)
            self._follow(link)
        return returns

    def _seed(self) -> None:
        links = set(self.region.links)
        wanted: set[str] = set()
        for site in self.region.module.calls:
            if site.link in links and goes_backward(site):
                wanted |= set(carriers(backward_of(site)))
        for site in self.region.module.calls if not wanted and self.region.loop is not None else ():
            # ``loss_scaler(loss, optimizer)``: a function of the project goes backward.
            if site.link in links and isinstance(site.expr, forms.Call) and "scaler" in last_name(site.expr.func):
                wanted |= {name for arg in site.expr.args[:1] for name in carriers(arg.value)}
        self.losses = wanted

    def _follow(self, link: Link) -> None:
        stmt = link.stmt
        if isinstance(stmt, forms.Assign):
            for target in stmt.targets:
                self._bind(target, stmt.value, link)
        elif isinstance(stmt, forms.Declare) and stmt.value is not None:
            self._bind(stmt.target, stmt.value, link)
        elif isinstance(stmt, forms.For):
            self._bind(stmt.target, stmt.iter, link)

    def _bind(self, target: Expr, value: Expr, link: Link) -> None:
        both = isinstance(target, forms.Sequence) and isinstance(value, forms.Sequence)
        if both and len(target.items) == len(value.items):  # type: ignore[union-attr]
            for inner, part in zip(target.items, value.items, strict=True):  # type: ignore[union-attr]
                self._bind(inner, part, link)
            return
        carries = self._carries(value, link)
        for name in target_names(target):
            if isinstance(target, forms.Sub):
                self.names |= {name} if carries else set()
            elif carries or name in self.losses and self._may_be_loss(value):
                self.names.add(name)
            else:
                self.names.discard(name)

    def _may_be_loss(self, value: Expr) -> bool:
        """What a loss is assigned, unless that is a number already."""
        return isinstance(value, (forms.Call, forms.Binary, forms.Name, forms.Sub, forms.Attr)) and (
            last_name(value.func) not in _READING if isinstance(value, forms.Call) else True
        )

    # -- which expressions are tensors on the GPU

    def _carries(self, expr: Expr, link: Link) -> bool:
        if isinstance(expr, forms.Name):
            return expr.id in self.names
        if isinstance(expr, forms.Attr):
            return dotted(expr) in self.names or expr.name not in _SHAPES and self._carries(expr.value, link)
        if isinstance(expr, forms.Sub):
            return self._carries(expr.value, link)
        if isinstance(expr, forms.Binary):
            return self._carries(expr.left, link) or self._carries(expr.right, link)
        if isinstance(expr, forms.Unary):
            return expr.op != "not" and self._carries(expr.value, link)
        if isinstance(expr, forms.Compare):
            return expr.ops[0] not in ("is", "is not", "in", "not in") and any(
                self._carries(side, link) for side in (expr.left, *expr.rights)
            )
        if isinstance(expr, forms.Sequence):
            return any(self._carries(item, link) for item in expr.items)
        if isinstance(expr, forms.Dict):
            return any(self._carries(entry.value, link) for entry in expr.entries)
        if isinstance(expr, forms.Call):
            return self._call_carries(expr, link)
        return False

    def _call_carries(self, call: forms.Call, link: Link) -> bool:
        name = last_name(call.func)
        if name in _SHAPES or name in _READING or name in _OPAQUE:
            return False
        if isinstance(call.func, forms.Attr) and self._carries(call.func.value, link):
            return True
        if dotted(call.func) in self.networks and call.args:
            return True
        site = Site(call, link, None)
        if not any(self._carries(arg.value, link) for arg in call.args):
            if name in ("to", "cuda"):
                return self._is_moved(call, link)
            scopes = list(called_scopes(self.project, site)) if isinstance(call.func, (forms.Name, forms.Attr)) else []
            goes = len(scopes) == 1 and any(goes_backward(inner) for inner in _calls_of(scopes[0]))
            return goes and self._enter(scopes[0], site, quiet=True)
        values = list(self.project.evaluator.values(call.func, self.project.point(site)))
        if any(isinstance(value, External) for value in values):
            return all(isinstance(value, External) and _computes(value.path) for value in values)
        scopes = list(called_scopes(self.project, site))
        if len(scopes) == 1:
            return self._enter(scopes[0], site, quiet=True)
        return not scopes and all(isinstance(value, (Unknown, Made, Instance, Moved)) for value in values)

    def _is_moved(self, call: forms.Call, link: Link) -> bool:
        site = Site(call, link, None)
        return any(isinstance(value, Moved) for value in self.project.evaluator.values(call, self.project.point(site)))

    def _enter(self, scope: Scope, site: Site, quiet: bool) -> bool:
        """What a called function does with the tensors that it is given."""
        if self.depth >= 3 or scope is self.region.scope or scope.function.is_generator:
            return False
        call = site.expr
        assert isinstance(call, forms.Call)
        params = [param.name for param in scope.function.params]
        number = 1 if scope.owner is not None and not scope.has_decorator("staticmethod") else 0
        names: set[str] = set()
        for arg in call.args:
            carries = self._carries(arg.value, site.link)
            if arg.name is None:
                if carries and number < len(params):
                    names.add(params[number])
                number += 1
            elif carries:
                names.add(arg.name)
        region = function_region(scope, site)
        return _Region(self.loop, region, names, self.depth + 1, self.found, quiet).run()

    # -- which expressions wait

    def _look(self, link: Link) -> None:
        for expr in certain_expressions(link.stmt):
            if isinstance(expr, forms.Call):
                self._look_at_call(expr, link)
            elif isinstance(expr, forms.FString):
                for part in expr.parts:
                    if self._carries(part, link):
                        self._add(part, link)
        if isinstance(link.stmt, (forms.If, forms.While, forms.Assert)):
            test = link.stmt.test
            if not isinstance(test, (forms.Name, forms.Attr)) and self._decides(test, link):
                self._add(test, link)

    def _decides(self, test: Expr, link: Link) -> bool:
        if isinstance(test, forms.Unary) and test.op == "not":
            return not isinstance(test.value, (forms.Name, forms.Attr)) and self._decides(test.value, link)
        if isinstance(test, forms.Bool):
            return self._decides(test.left, link)
        return isinstance(test, (forms.Compare, forms.Call)) and self._carries(test, link)

    def _look_at_call(self, call: forms.Call, link: Link) -> None:
        name = last_name(call.func)
        if isinstance(call.func, forms.Attr) and name in _READING:
            if self._carries(call.func.value, link) and not may_not_block(call):
                self._add(call, link)
            return
        if isinstance(call.func, forms.Attr) and name == "to" and self._carries(call.func.value, link):
            args = calling.arguments(call, self.project.point(Site(call, link, None)))
            kinds = {kind for kind, _ in targets_of(self.project.evaluator, "to", args)}
            if kinds == {"cpu"} and not may_not_block(call):
                self._add(call, link)
            return
        given = [arg.value for arg in call.args if self._carries(arg.value, link)]
        if not given:
            given = [
                part for arg in call.args if isinstance(arg.value, forms.Binary) and arg.value.op == "%"
                for part in [arg.value.right] if name == "print" and self._carries(part, link)
            ]  # fmt: skip
        if not given:
            scopes = list(called_scopes(self.project, Site(call, link, None)))
            if len(scopes) == 1 and any(goes_backward(site) for site in _calls_of(scopes[0])):
                self._enter(scopes[0], Site(call, link, None), quiet=False)
            return
        site = Site(call, link, None)
        values = list(self.project.evaluator.values(call.func, self.project.point(site)))
        paths = {value.path for value in values if isinstance(value, External)}
        if paths & _CONVERSIONS or any(path.startswith("numpy.") for path in paths) or name in _LOGGING:
            self._add(call, link)
        elif any(isinstance(value, (Func, Instance)) for value in values):
            scopes = list(called_scopes(self.project, site))
            if len(scopes) == 1:
                self._enter(scopes[0], site, quiet=False)

    def _add(self, expr: Expr, link: Link) -> None:
        module = self.region.module
        inside = {part.at for part in descend(expr)}
        for other in self.found:
            if other.module is not module:
                continue
            if any(part.at == expr.at for part in descend(other.expr)):
                self.found.remove(other)  # the inner one is what waits
                break
            if other.at in inside:
                return
        self.found.append(Sync(module, expr, link, self.region))


def _calls_of(scope: Scope) -> list[Site]:
    return scope.module.calls_by_scope.get(scope, [])


def _computes(path: str) -> bool:
    """Whether a library's function gives a tensor where it is given one."""
    return path.startswith(("torch.", "torchmetrics.", "torchvision.", "timm.")) and not path.startswith(
        ("torch.utils.", "torch.distributed.", "torch.save")
    )


def network_names(module: Module) -> set[str]:
    """The names that a module calls ``train``, ``eval``, ``parameters`` or ``zero_grad`` on: its networks."""
    found: set[str] = set()
    for site in module.calls:
        call = site.expr
        assert isinstance(call, forms.Call)
        if isinstance(call.func, forms.Attr) and call.func.name in _OF_NETWORKS:
            network = call.func.value
            while isinstance(network, forms.Call) and last_name(network.func) in _FLUENT:  # net.to("cuda").eval()
                network = network.func.value if isinstance(network.func, forms.Attr) else network.func
            name = dotted(network)
            if name is not None and name not in ("self", "torch"):
                found.add(name)
    return found - {"optimizer", "self.optimizer", "optim", "opt"}


_FLUENT = frozenset({"to", "cuda", "cpu", "half", "float", "double", "requires_grad_"})
_OF_NETWORKS = frozenset({"train", "eval", "parameters", "named_parameters", "load_state_dict"})
