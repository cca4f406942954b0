"""Rules about copies: pinned in the wrong place, started and read too soon, made again and again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dlcheck import edits
from dlcheck.checks.cast_edits import copied_first
from dlcheck.checks.constant_edits import constant_above
from dlcheck.checks.device_tests import asks_for_cuda
from dlcheck.checks.mending import without_method
from dlcheck.checks.option_edits import Change, alone, fix_of, remove_option
from dlcheck.checks.registry import facts, rule
from dlcheck.checks.report import Spot, elsewhere, finding, joint, make_fix, provenance, written
from dlcheck.checks.worker_edits import unpinned_in_worker
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Applicability, Finding, Fix
from dlcheck.model.loaders import Loader, OptionAlt
from dlcheck.model.loops import callers_in, enclosing_loops
from dlcheck.model.scopes import dotted, last_name
from dlcheck.model.training import hostdata, hostreads, pinning
from dlcheck.model.training.copying import Move, in_background, is_device_name, moves, pinned_for_this_copy
from dlcheck.model.training.invariance import in_every_step, step_around
from dlcheck.model.transfers import target_of
from dlcheck.model.values import Const, Made, Moved
from dlcheck.model.worlds import ANY

# torch's versions: the option came, was discouraged, and does nothing any more.
_DEVICE_OPTION_SINCE = (1, 12)
_DEVICE_OPTION_DISCOURAGED = (2, 7)
_DEVICE_OPTION_IGNORED = (2, 9)
# The first version of torch in which a copy to MPS keeps its source alive.
_MPS_KEEPS_SOURCE = (2, 13)

facts(Move, moves)


# -- pinned in the wrong place


@rule("DLC104")
def inline_pin_memory(move: Move) -> Iterator[Finding]:
    if move.method == "copy_" or not pinned_for_this_copy(move.project, move.site) or not _is_copied_to_gpu(move):
        return
    if in_background(move.project, move.link) or not _repeats(move):
        return
    yield _at(move, "DLC104", call=move.text, fix=_unpinned(move))


def _unpinned(move: Move) -> Fix | Refused:
    """The copy without the pinning in front of it."""
    receiver = move.receiver
    if not isinstance(receiver, forms.Call) or not isinstance(receiver.func, forms.Attr):
        return Refused("it is pinned by a statement of its own")
    return make_fix("unsafe", "Remove `.pin_memory()`", [without_method(move.module, receiver)])


def _is_copied_to_gpu(move: Move) -> bool:
    """A pinned tensor is copied to a GPU, unless it is known to stay or only to be converted."""
    if any(kind == "cuda" for kind, _ in move.kinds):
        return True
    target = target_of(move.args)
    return target is not None and all(kind == "unknown" for kind, _ in move.kinds) and is_device_name(target.expr)


def _repeats(move: Move) -> bool:
    """Whether it runs more than once, as far as the callers can be seen; a helper that nobody calls may."""
    scope = move.link.scope
    if move.site.inner is not None or scope.yields:
        return True
    if any(True for _ in enclosing_loops(move.project, move.link, None, ANY)):
        return True
    return scope.kind == "function" and scope.name != "main" and not any(callers_in(move.project, scope, ANY))


@rule("DLC105")
def pin_memory_in_worker(loader: Loader) -> Iterator[Finding]:
    for pin in pinning.worker_pins(loader):
        for workers in loader.option("num_workers"):
            if workers.positive and joint([pin.world], [workers.world], loader.worlds()):
                yield finding(
                    "DLC105",
                    Spot(pin.module, pin.at),
                    pin.link,
                    variant="fresh-process" if loader.spawns() else "",
                    related=[
                        written(workers, loader)._replace(caption="with these workers"),
                        *provenance(workers.value),
                    ],
                    fix=unpinned_in_worker(loader, pin),
                    call=pin.text,
                    owner=pin.owner,
                )
                break


@rule("DLC107")
def unpinnable_batch_type(loader: Loader) -> Iterator[Finding]:
    if not loader.is_plain:
        return
    for batch in pinning.unpinnable_batches(loader):
        for option in loader.pinning(True):
            if joint([batch.world], [option.world], loader.worlds()):
                yield finding(
                    "DLC107",
                    Spot(batch.module, batch.at),
                    batch.link,
                    related=[written(option, loader)._replace(caption="asked to pin here"), *provenance(option.value)],
                    cls=batch.cls.name,
                    owner=batch.owner,
                    loader=loader.name,
                )
                break


@rule("DLC108")
def pin_memory_no_effect(loader: Loader) -> Iterator[Finding]:
    yield from _device_option(loader)
    if not loader.is_plain or loader.framework:
        return
    idle = pinning.copied_elsewhere(loader)
    if idle is None:
        return
    for option in loader.option("pin_memory"):
        literal = option.given and option.is_(True) and not _free(option)
        if literal and joint([option.world], [idle.world], loader.worlds()):
            spot = written(option, loader)
            yield finding(
                "DLC108",
                spot,
                loader.project.link_at(spot.module, spot.at),
                related=[Spot(idle.module, idle.at, "copied here")],
                fix=fix_of("safe", "Remove `pin_memory`", [alone(remove_option(loader, option, "pin_memory"))]),
                loader=loader.name,
                device="a Mac's GPU (MPS)" if idle.kind == "mps" else "the CPU",
            )
            return


def _free(option: OptionAlt) -> bool:
    return isinstance(option.value, Const) and option.value.free is not None


def _device_option(loader: Loader) -> Iterator[Finding]:
    """``pin_memory_device=``, which torch has stopped to heed."""
    newest = loader.project.targets.torch
    if newest is not None and newest < _DEVICE_OPTION_DISCOURAGED:
        return
    ignored = newest is None or newest >= _DEVICE_OPTION_IGNORED
    for option in loader.option("pin_memory_device"):
        known = option.given and isinstance(option.value, (Const, Made)) and not option.falsy and not _free(option)
        if known and joint([option.world], loader.worlds()):
            spot = written(option, loader)
            yield finding(
                "DLC108",
                spot,
                loader.project.link_at(spot.module, spot.at),
                variant="device-ignored" if ignored else "device-discouraged",
                related=elsewhere(option, loader, "set here"),
                fix=_without_device(loader, option),
                loader=loader.name,
            )
            return


def _without_device(loader: Loader, option: OptionAlt) -> Fix | Refused:
    """The option goes; where an older torch is possible, it may have chosen the device."""
    oldest = loader.project.targets.torch_min
    old = oldest is not None and oldest < _DEVICE_OPTION_IGNORED
    change = remove_option(loader, option, "pin_memory_device")
    if not old and isinstance(change, Change):
        change = change._replace(shared=False)  # it does nothing for the others either
    return fix_of("unsafe" if old else "safe", "Remove `pin_memory_device`", [change])


# -- started and read too soon


@rule("DLC109")
def device_to_host_race(move: Move) -> Iterator[Finding]:
    if not _mentions_flag(move) or not move.waits(False) or not _copies_to_host(move):
        return
    found = hostreads.outcome(move)
    if found is None or found.kind == "kept" and move.method == "copy_":
        return
    read = found.kind == "read"
    yield _at(
        move,
        "DLC109",
        variant="" if read else "kept",
        related=[Spot(found.module, found.at, "read here" if read else "kept here")],
        call=move.text,
        fix=_waiting(move),
    )


def _waiting(move: Move) -> Fix | Refused:
    """The copy without ``non_blocking=True``: it waits, and nothing else changes."""
    edit = edits.remove_argument(move.module.source, move.module.facts, move.call, "non_blocking")
    return make_fix("safe", "Remove `non_blocking`", [edit])


def _mentions_flag(move: Move) -> bool:
    """Whether the call says anything of blocking: most do not, and need no further question."""
    args = move.call.args
    return any(arg.name == "non_blocking" or arg.star == "**" for arg in args) or len(args) > 1


def _copies_to_host(move: Move) -> bool:
    if move.method == "copy_":
        return hostreads.fills_pinned_buffer(move) and not hostreads.copies_from_host(move)
    if move.method != "to" or not move.to_host_only():
        return False
    return not all(hostreads.is_on_host(move, value) for value in move.values())


@rule("DLC110")
def mps_non_blocking_race(move: Move) -> Iterator[Finding]:
    oldest = move.project.targets.torch_min
    if oldest is not None and oldest >= _MPS_KEEPS_SOURCE or move.method != "to" or not _mentions_flag(move):
        return
    if any(isinstance(value, Moved) for value in move.values()):
        return
    if joint(move.mps_worlds(), move.waits(False)):
        variant = "" if move.names_mps() else "any-accelerator"
        yield _at(move, "DLC110", variant=variant, call=move.text, fix=_only_for_cuda(move))


def _only_for_cuda(move: Move) -> Fix | Refused:
    """``non_blocking`` where the device is CUDA's; on a Mac's the copy waits."""
    call, module = move.call, move.module
    if not any(arg.name == "non_blocking" and isinstance(arg.value, forms.Const) for arg in call.args):
        return Refused("`non_blocking` is not written here as a literal")
    target = target_of(move.args)
    expr = target.expr if target is not None else None
    if isinstance(expr, forms.Const):
        edit = edits.remove_argument(module.source, module.facts, call, "non_blocking")
        return make_fix("safe", "Remove `non_blocking`", [edit])
    test = asks_for_cuda(move.project, move.point, expr)
    if test is None:
        return Refused("it is not clear how to ask this device whether it is CUDA's")
    edit = edits.set_argument(module.source, module.facts, call, "non_blocking", test)
    return make_fix("safe", f"Set `non_blocking={test}`", [edit])


# -- made again and again


@rule("DLC111")
def host_tensor_then_move(move: Move) -> Iterator[Finding]:
    if move.method == "copy_":
        return
    made = hostdata.factory(move)
    if made is None or hostdata.is_cached(move.link) or not move.to_gpu():
        return
    if in_every_step(move.project, move.link, move.steps):
        random = hostdata.is_random(move, made)
        yield _at(
            move,
            "DLC111",
            variant="random" if random else "",
            call=move.text,
            made=move.module.line(made.func.at),
            fix=_made_there(move, made, random),
        )


# Methods that give the same on any device.
_EXACT = frozenset(
    {"unsqueeze", "squeeze", "view", "reshape", "repeat", "permute", "transpose", "t", "flatten", "float",
     "double", "half", "bfloat16", "long", "int", "bool", "to", "fill_", "zero_", "contiguous",
     "detach", "clone", "view_as", "flip", "tile"}
)  # fmt: skip


def _is_plain(expr: forms.Expr) -> bool:
    """Whether an argument is no tensor: a number, a type, a size."""
    if isinstance(expr, forms.Unary):
        return _is_plain(expr.value)
    if isinstance(expr, forms.Binary):
        return _is_plain(expr.left) and _is_plain(expr.right)
    if isinstance(expr, forms.Sub):  # x.shape[0]
        return last_name(expr.value) == "shape"
    if isinstance(expr, forms.Call):  # x.size(0), len(x)
        return last_name(expr.func) in ("size", "len", "int")
    return isinstance(expr, forms.Const) or last_name(expr) == "shape" or (dotted(expr) or "").startswith("torch.")


def _made_there(move: Move, made: forms.Call, random: bool) -> Fix | Refused:
    """``device=`` for the function that makes the tensor, and no copy."""
    module = move.module
    target = target_of(move.args) if move.method != "cuda" or move.call.args else None
    device = '"cuda"'
    if target is not None and target.expr is not None:
        device = module.line(target.expr.at)
        if move.method == "cuda" and isinstance(target.expr, forms.Const):
            device = f'"cuda:{target.expr.value}"'
    methods = hostdata.methods_between(move)
    if not all(map(_is_plain, (arg.value for method in methods for arg in method.args))):
        return Refused("a method of the chain may take tensors that stay on the host")
    if any(map(_asks_for_gradient, (made, *methods))):
        return Refused("what is made there would be a leaf of the graph, which its copy is not")
    added = edits.add_argument(module.source, module.facts, made, "device", device, order=())
    # On a GPU the last digit of what is computed may differ.
    computes = (
        last_name(made.func) == "linspace"
        or _has_fractions(made)
        or not all(last_name(one.func) in _EXACT for one in methods)
    )
    kind: Applicability = "unsafe" if random or computes else "safe"
    return make_fix(kind, f"Pass `device={device}`", [added, without_method(module, move.call)])


def _asks_for_gradient(call: forms.Call) -> bool:
    """``requires_grad=True``, ``Variable(x, True)``, ``.requires_grad_()``."""
    if last_name(call.func) in ("requires_grad_", "retain_grad", "Parameter"):
        return True
    if last_name(call.func) == "Variable" and len(call.args) > 1:
        return True
    flags = [arg.value for arg in call.args if arg.name == "requires_grad"]
    return any(not isinstance(flag, forms.Const) or bool(flag.value) for flag in flags)


def _has_fractions(made: forms.Call) -> bool:
    """Whether an ``arange`` may go by steps that are no whole numbers: a GPU computes these otherwise."""
    steps = [arg.value for arg in made.args if arg.name == "step"] + [
        arg.value for n, arg in enumerate(made.args) if n == 2 and arg.name is None
    ]
    starred = any(arg.star for arg in made.args)
    return last_name(made.func) == "arange" and (
        starred or any(not isinstance(step, forms.Const) or not isinstance(step.value, int) for step in steps)
    )


@rule("DLC112")
def loop_invariant_transfer(move: Move) -> Iterator[Finding]:
    if move.method == "copy_" or not move.to_gpu():
        return
    found = hostdata.constant(move, move.steps)
    if found is not None:
        related = [Spot(move.module, found.loop.head, "in each round of this loop")] if found.loop is not None else []
        variant, fix = "forward" if found.in_forward else "", constant_above(move, found)
        yield _at(move, "DLC112", variant=variant, related=related, call=move.text, fix=fix)


@rule("DLC113")
def cast_before_transfer(move: Move) -> Iterator[Finding]:
    if move.method == "copy_" or not any(kind == "cuda" for kind, _ in move.kinds):
        return
    loop = step_around(move.link, move.steps)
    cast = hostdata.cast_of_bytes(move, loop) if loop is not None else None
    if cast is not None:
        related = [Spot(move.module, cast.at, "made floats here")] if cast.at != move.call.at else []
        yield _at(move, "DLC113", related=related, call=move.text, fix=copied_first(move, cast))


# -- what they share


def _at(
    move: Move,
    code: str,
    *,
    variant: str = "",
    related: list[Spot] | None = None,
    fix: Fix | Refused | None = None,
    **fields: Any,
) -> Finding:
    spot = Spot(move.module, move.call.at)
    return finding(code, spot, move.link, variant=variant, related=related or (), fix=fix, **fields)
