"""Copies of tensors to a device: which tensor, which device, blocking or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.call_sites import CallSite
from dlcheck.model.depth import unfolds
from dlcheck.model.loops import enclosing_loops
from dlcheck.model.scopes import Site, last_name
from dlcheck.model.values import (
    UNKNOWN,
    Alt,
    Arguments,
    Batch,
    Const,
    External,
    Made,
    Pinned,
    Point,
    Thunk,
    Undefined,
    Unknown,
    Value,
)
from dlcheck.model.worlds import ANY, World, product

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.project import Project

Kind = Literal["cuda", "cpu", "mps", "dtype", "unknown"]

# Functions that make a tensor, with ``device=`` where.
TENSOR_MAKERS = frozenset(
    f"torch.{name}"
    for name in (
        "tensor", "as_tensor", "zeros", "ones", "empty", "full", "rand", "randn", "randint", "arange", "linspace",
        "eye", "zeros_like", "ones_like", "empty_like", "full_like", "randn_like", "rand_like", "randperm", "stack",
    )
)  # fmt: skip

# What people call the number of a GPU.
_RANKS = frozenset(
    {"rank", "local_rank", "gpu", "gpu_id", "device_id", "local_gpu", "cuda_id", "gpus", "gpu_ids", "device_ids",
     "device_index"}
)  # fmt: skip


@dataclass(eq=False)
class Transfer(CallSite):
    """A call that copies a tensor: ``x.to(device)``, ``x.cuda()``, ``x.type(torch.cuda.FloatTensor)``.

    ``sources`` are what is copied (a batch, or a tensor that the program pinned itself),
    ``devices`` where to, ``blocking`` whether the call waits; each with its worlds.
    """

    project: Project
    site: Site
    point: Point
    sources: list[Alt] = field(default_factory=list)
    devices: list[tuple[Kind, World]] = field(default_factory=list)
    blocking: list[tuple[bool, World]] = field(default_factory=list)

    @property
    def method(self) -> str:
        return last_name(self.call.func)

    @property
    def guards(self) -> list[World]:
        return self.project.evaluator.guards(self.point.link, self.point.frame)

    def to_cuda(self) -> list[World]:
        """The worlds in which control gets here and the target is a CUDA device."""
        cuda = [world for kind, world in self.devices if kind == "cuda"]
        return list(product(self.guards, cuda))

    def worlds(self, blocking: bool) -> list[World]:
        """The worlds in which this copies to CUDA and does (or does not) block."""
        return list(product(self.to_cuda(), (world for blocks, world in self.blocking if blocks is blocking)))

    def matters(self) -> bool:
        """Whether it is worth a word: pinned by hand, or done for more than a single batch."""
        return any(isinstance(source.value, Pinned) or self.repeats(source.world) for source in self.sources)

    def repeats(self, world: World) -> bool:
        """Whether it runs more than once: in a loop, or called from one."""
        return any(True for _ in enclosing_loops(self.project, self.site.link, self.site.inner, world)) or (
            self.site.inner is not None or bool(self.site.link.scope.yields)
        )

    def maybe_mps(self) -> bool:
        """Whether the device can be a Mac's GPU: by its name, or as whatever accelerator there is."""
        if any(kind == "mps" for kind, _ in self.devices):
            return True
        target = target_of(calling.arguments(self.call, self.point))
        alts = self.project.evaluator.force(target) if target is not None and self.method == "to" else []
        return any(_is_any_accelerator(alt.value) for alt in alts)


def device_kinds(ev: Evaluator, thunk: Thunk) -> list[tuple[Kind, World]]:
    """What kinds of device an expression can name, each with its world."""
    out: list[tuple[Kind, World]] = []
    for value, world in _flat(ev, ev.force(thunk)):
        if _is_any_accelerator(value):  # CUDA's where there is one
            with_cuda = world.assume(("symbol", "cuda"), True)
            out += [("cuda", with_cuda)] if with_cuda is not None else [("unknown", world)]
        else:
            out.append((_kind(value, thunk), world))
    return out


def _is_any_accelerator(value: Value) -> bool:
    return isinstance(value, Made) and value.path == "torch.accelerator.current_accelerator"


def _flat(ev: Evaluator, alts: list[Alt]) -> list[Alt]:
    """The alternatives for a device, with what it is made of in the place of ``torch.device``."""
    return [
        Alt(inner, both)
        for value, world in alts
        for inner, other in _named_by(ev, value)
        if (both := world.merge(other)) is not None
    ]


@unfolds((Alt(UNKNOWN, ANY),))
def _named_by(ev: Evaluator, value: Value) -> tuple[Alt, ...]:
    """``torch.device(x)`` is what ``x`` names."""
    if isinstance(value, Made) and value.path == "torch.device" and value.args is not None:
        first = calling.argument(value.args, "type", 0) or calling.argument(value.args, "device", 0)
        if first is not None:
            return tuple(Alt(_named_rank(inner, first), world) for inner, world in _flat(ev, ev.force(first)))
    return (Alt(value, ANY),)


def _named_rank(value: Value, thunk: Thunk) -> Value:
    return Const(0) if isinstance(value, (Unknown, Made)) and _is_rank(thunk) else value


def _is_rank(thunk: Thunk) -> bool:
    expr = thunk.expr
    if isinstance(expr, forms.Sub):  # args.gpus[0]
        expr = expr.value
    return last_name(expr) in _RANKS


def _kind(value: Value, thunk: Thunk) -> Kind:
    if isinstance(value, Const):
        return _named(value.value)
    if isinstance(value, External):
        if ".cuda." in value.path:
            return "cuda"
        return "dtype" if value.path.startswith("torch.") else "unknown"
    if isinstance(value, Made):
        return _made(value, thunk)
    if isinstance(value, Unknown):
        is_rank = isinstance(value.token, tuple) and value.token[:1] == ("rank",)
        return "cuda" if is_rank or _is_rank(thunk) else "unknown"
    return "unknown"


def _named(name: object) -> Kind:
    if isinstance(name, bool) or name is None:
        return "unknown"
    if isinstance(name, int):
        return "cuda"
    text = str(name)
    if text.startswith(("cuda", "gpu")):
        return "cuda"
    if text.startswith("cpu"):
        return "cpu"
    if text.startswith("mps"):
        return "mps"
    return "unknown"


def _made(value: Made, thunk: Thunk) -> Kind:
    if value.path.startswith("text:"):
        return _named(value.path.removeprefix("text:"))
    if value.path in ("torch.cuda.current_device", "torch.cuda.device"):
        return "cuda"
    if value.path in ("torch.distributed.get_rank",) or _is_rank(thunk):
        return "cuda"
    return "unknown"


def targets_of(ev: Evaluator, method: str, args: Arguments) -> list[tuple[Kind, World]]:
    """Where ``x.method(args)`` copies to: kinds of devices, or "dtype" where it only converts."""
    if method == "cuda":
        return [("cuda", ANY)]
    if method in ("xpu", "npu", "mps"):
        return [("unknown", ANY)]
    target = target_of(args)
    if target is None:
        return [("dtype", ANY)]
    kinds = device_kinds(ev, target)
    if method == "type":  # of an unknown type: a conversion
        return [("dtype" if kind == "unknown" else kind, world) for kind, world in kinds]
    return kinds


def target_of(args: Arguments) -> Thunk | None:
    """The device, dtype or tensor that ``x.to(...)`` is given."""
    return calling.keyword(args, "device") or calling.positional(args, 0)


def transfers(project: Project) -> Iterator[Transfer]:
    """Every copy of a batch, or of a tensor that was pinned by hand, in the loaded modules."""
    for module in project.loaded():
        for site in module.calls_to("to", "cuda", "type"):
            call = site.expr
            assert isinstance(call, forms.Call)
            if isinstance(call.func, forms.Attr):
                transfer = _transfer(project, site, call, call.func)
                if transfer is not None and transfer.matters():
                    yield transfer


def _transfer(project: Project, site: Site, call: forms.Call, func: forms.Attr) -> Transfer | None:
    ev = project.evaluator
    ev.fresh()
    point = project.point(site)
    sources = [alt for alt in ev.eval(func.value, point) if isinstance(alt.value, (Batch, Pinned))]
    if not sources:
        return None
    args = calling.arguments(call, point)
    transfer = Transfer(project, site, point, sources)
    transfer.devices = targets_of(ev, func.name, args)
    transfer.blocking = blocking_of(ev, func.name, args)
    return transfer


def blocking_of(ev: Evaluator, method: str, args: Arguments) -> list[tuple[bool, World]]:
    """Whether the call blocks; empty where that is unknown."""
    name = "async" if calling.keyword(args, "async") else "non_blocking"
    thunk = calling.keyword(args, name)
    if thunk is None:
        thunk = next((given for given, _ in args.positional[1:] if _is_flag(ev, given)), None)
    if thunk is not None:
        alts = ev.force(thunk)
    elif any(starred for _, starred in args.positional):
        return []
    else:
        alts = calling.from_keyword_spreads(ev, args, "non_blocking")
    out = []
    for value, world in alts:
        if isinstance(value, Undefined):
            out.append((True, world))
        # What the user would have to choose is no fault of the code.
        elif isinstance(value, Const) and isinstance(value.value, int) and not value.chosen:
            out.append((not value.value, world))
    return out


def may_not_block(call: forms.Call) -> bool:
    """Whether a copy is written so that the host may go on: ``non_blocking=False`` is not."""
    return any(arg.star or arg.name == "non_blocking" and not _is_false(arg.value) for arg in call.args)


def _is_false(expr: forms.Expr) -> bool:
    return isinstance(expr, forms.Const) and not expr.value


def _is_flag(ev: Evaluator, thunk: Thunk) -> bool:
    return any(isinstance(alt.value, Const) and isinstance(alt.value.value, bool) for alt in ev.force(thunk))
