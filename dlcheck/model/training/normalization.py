"""Batch norms that see one value per channel where a batch holds one sample: behind a linear layer or a pooling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.depth import unfolds
from dlcheck.model.flow import links_of
from dlcheck.model.loops import BatchLoop
from dlcheck.model.scopes import Link, Module, Scope, descend, dotted, expressions
from dlcheck.model.training.loop_uses import uses_in
from dlcheck.model.values import Const, External, Frame, Instance, Made, Many, Point, Thunk, Value

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.project import Project

_LINEAR = frozenset({"torch.nn.Linear", "torch.nn.LazyLinear", "torch.nn.Bilinear"})
_NORMS = frozenset({"torch.nn.BatchNorm1d", "torch.nn.LazyBatchNorm1d", "torch.nn.SyncBatchNorm"})
_NORMS_2D = frozenset({"torch.nn.BatchNorm2d", "torch.nn.LazyBatchNorm2d"})
_POOLS = frozenset({"torch.nn.AdaptiveAvgPool2d", "torch.nn.AdaptiveMaxPool2d"})
# What may stand between the two without giving a channel more values.
_BETWEEN = frozenset(
    f"torch.nn.{name}"
    for name in ("ReLU", "LeakyReLU", "ELU", "GELU", "SiLU", "Tanh", "Sigmoid", "Dropout", "Identity", "PReLU", "SELU")
)

_FUNCTIONS_BETWEEN = frozenset(
    f"torch.nn.functional.{name}" for name in ("relu", "leaky_relu", "elu", "gelu", "silu", "dropout", "tanh")
) | {"torch.relu", "torch.tanh", "torch.sigmoid"}


def crashing_norm(loop: BatchLoop) -> tuple[Module, int] | None:
    """The batch norm of a network that the loop's batches go into, which fails for a batch of one sample."""
    return next((norm for use in uses_in(loop) for norm in _in_network(loop.project, use.value, 0)), None)


def _in_network(project: Project, value: Value, depth: int) -> Iterator[tuple[Module, int]]:
    if depth > 4:
        return
    if isinstance(value, Made) and value.args is not None:
        if value.path == "torch.nn.Sequential":
            yield from _in_sequence(project, value, depth)
        elif value.path in ("torch.compile", "torch.nn.DataParallel", "torch.nn.parallel.DataParallel"):
            first = calling.positional(value.args, 0)
            for alt in project.evaluator.force(first) if first is not None else ():
                yield from _in_network(project, alt.value, depth + 1)
    elif isinstance(value, Instance):
        forward = project.method(value.cls, "forward")
        if forward is not None and any(path.startswith("torch.nn.") for path in project.external_bases(value.cls)):
            yield from _in_forward(project, value, forward, depth)


def _in_sequence(project: Project, value: Made, depth: int) -> Iterator[tuple[Module, int]]:
    assert value.args is not None
    ev = project.evaluator
    layers = [_layer(ev, thunk) for thunk, starred in value.args.positional if not starred]
    if len(layers) != len(value.args.positional):
        return
    before: Made | None = None
    for layer in layers:
        if isinstance(layer, Made) and _fails(ev, before, layer):
            yield from _place(layer)
        if layer is not None:
            yield from _in_network(project, layer, depth + 1)
        if not (isinstance(layer, Made) and layer.path in _BETWEEN):
            before = layer if isinstance(layer, Made) else None


def _layer(ev: Evaluator, thunk: Thunk) -> Value | None:
    alts = ev.force(thunk)
    return alts[0].value if len(alts) == 1 else None


def _fails(ev: Evaluator, before: Made | None, norm: Made) -> bool:
    """Whether a norm has one value per channel and sample: behind a linear layer, or one that pools to a point."""
    if before is None or norm.args is None or norm.args.spreads:
        return False
    if norm.path in _NORMS:
        return before.path in _LINEAR
    if norm.path in _NORMS_2D and before.path in _POOLS and before.args is not None:
        size = calling.argument(before.args, "output_size", 0)
        return size is not None and all(_is_one(ev, alt.value) for alt in ev.force(size))
    return False


@unfolds(False)
def _is_one(ev: Evaluator, value: Value) -> bool:
    if isinstance(value, Many):
        return bool(value.items) and all(_is_one(ev, alt.value) for item in value.items for alt in ev.force(item))
    return value == Const(1)


def _in_forward(project: Project, network: Instance, forward: Scope, depth: int) -> Iterator[tuple[Module, int]]:
    """The norms of a network's ``forward``, and those of the sequences and networks that it calls."""
    run = _Forward(project.evaluator, project.evaluator.frame(forward, self_=network))
    for link in links_of(forward):
        for root in expressions(link.stmt):
            for part in descend(root):
                layer = run.layer(part, link) if isinstance(part, forms.Call) and part.args else None
                if isinstance(layer, Made) and layer.path in _NORMS | _NORMS_2D:
                    assert isinstance(part, forms.Call)
                    if _fails(run.ev, run.last_layer(part.args[0].value, link), layer):
                        yield from _place(layer)
                elif isinstance(layer, (Made, Instance)) and layer != network:
                    yield from _in_network(project, layer, depth + 1)
        run.note(link)


@dataclass(eq=False)
class _Forward:
    """Which layer each name of a ``forward`` comes from, as its statements are read in order."""

    ev: Evaluator
    frame: Frame
    made_by: dict[str, Made | None] = field(default_factory=dict)

    def layer(self, call: forms.Call, link: Link) -> Value | None:
        values = list(self.ev.values(call.func, Point(self.frame, link)))
        return values[0] if len(values) == 1 else None

    def last_layer(self, expr: forms.Expr, link: Link) -> Made | None:
        """The layer that a value comes out of: ``linear`` of ``self.linear(x)`` and of ``relu(self.linear(x))``."""
        if not isinstance(expr, forms.Call):
            return self.made_by.get(dotted(expr) or "")
        layer = self.layer(expr, link)
        path = layer.path if isinstance(layer, (Made, External)) else ""
        if (path in _BETWEEN or path in _FUNCTIONS_BETWEEN) and expr.args:
            return self.last_layer(expr.args[0].value, link)
        return layer if isinstance(layer, Made) else None

    def note(self, link: Link) -> None:
        stmt = link.stmt
        name = dotted(stmt.targets[0]) if isinstance(stmt, forms.Assign) and len(stmt.targets) == 1 else None
        if name is not None and isinstance(stmt, forms.Assign):
            self.made_by[name] = self.last_layer(stmt.value, link)
        else:
            for changed in link.changes:
                self.made_by.pop(changed, None)


def _place(layer: Made) -> Iterator[tuple[Module, int]]:
    """Where a layer is made."""
    if layer.args is not None and layer.args.point is not None and layer.args.call is not None:
        yield layer.args.point.module, layer.args.call.at
