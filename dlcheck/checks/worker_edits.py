"""Fixes that take the GPU out of worker code: what is copied or pinned there is left to the training process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dlcheck import edits
from dlcheck.checks import mending, moving
from dlcheck.checks.option_edits import Change, alone, fix_of, set_in_call, set_option
from dlcheck.checks.report import make_fix
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Edit, Fix
from dlcheck.model import calling
from dlcheck.model.data.samples import CudaUse
from dlcheck.model.flow import links_in, links_of
from dlcheck.model.loaders import Loader, OptionAlt
from dlcheck.model.loops import BatchLoop
from dlcheck.model.scopes import Link, Module, Scope, children, descend, dotted, expressions, last_name
from dlcheck.model.training.pinning import WorkerPin
from dlcheck.model.values import Point

_WRAPPERS = frozenset({"tqdm", "trange", "track", "iter"})
_COMPUTED = Refused("what is computed on the GPU there would have to be computed elsewhere")


# -- copies


class _Part(NamedTuple):
    """Which part of a sample or batch is on the GPU: its place, its key, or ``None`` for the whole."""

    key: int | str | None
    width: int = 0


def moved_in_loop(loader: Loader, use: CudaUse) -> Fix | Refused:
    """The copy to the GPU in the training loops, and no longer where the sample or batch is made."""
    call = _call_at(use.module, use.at)
    scope = use.link.scope
    if call is None or call.args and any(arg.star for arg in call.args):
        return _COMPUTED
    copy = _copy_of(use.module, call)
    if isinstance(copy, Refused):
        return copy
    if not copy.attribute and _is_local(scope, copy.name):
        return Refused(f"the loop may not know `{copy.name}`")
    part = _returned_part(scope, use.link, call)
    if isinstance(part, Refused):
        return part
    takers = _takers(loader, use, scope)
    if isinstance(takers, Refused):
        return takers
    wanted: list[Edit | Refused] = [_dropped(use.module, use.link, call)]
    for taker, loop in takers:
        added = _copied_in(taker, loop, part, copy, use.module)
        if isinstance(added, Refused):
            return added
        wanted += added
    return make_fix("unsafe", "Copy the batch in the training loop", list(dict.fromkeys(wanted)))


def _call_at(module: Module, at: int) -> forms.Call | None:
    return next((site.expr for site in module.calls if site.expr.at == at and isinstance(site.expr, forms.Call)), None)


class _Copy(NamedTuple):
    """A copy as a loop would write it, ``.to("cuda")``, and the name of the module that it mentions.

    ``attribute`` is the dataset's that holds the device, if it is one: the text then has ``{}`` for the device.
    """

    text: str
    name: str = ""
    attribute: str = ""


def _copy_of(module: Module, call: forms.Call) -> _Copy | Refused:
    method = call.func.name if isinstance(call.func, forms.Attr) else ""
    plain = [arg.value for arg in call.args if arg.name is None]
    named = {arg.name: arg.value for arg in call.args if arg.name is not None}
    if method in ("to", "cuda"):
        if len(plain) > 1 or set(named) - {"device", "non_blocking"}:
            return Refused("it also changes the type")
        device = next(iter(plain), named.get("device"))
    else:
        method, device = "to", named.get("device")
    if device is None:
        return _Copy(".cuda()") if method == "cuda" else _COMPUTED
    text = f".{method}({module.line(device.at)})"
    if isinstance(device, forms.Const):
        return _Copy(text)
    if isinstance(device, forms.Name) and device.id in module.scope.names:
        return _Copy(text, device.id)
    literal = isinstance(device, forms.Call) and all(isinstance(arg.value, forms.Const) for arg in device.args)
    if isinstance(device, forms.Call) and literal and dotted(device.func) == "torch.device":
        return _Copy(text, "torch")
    if isinstance(device, forms.Attr) and dotted(device) == f"self.{device.name}":
        return _Copy(f".{method}({{}})", device.name, device.name)
    return Refused(f"the loop may not know `{module.line(device.at)}`")


def _returned_part(scope: Scope, link: Link, call: forms.Call) -> _Part | Refused:
    """Which part of what a function returns or yields a copy is, if it is used for nothing else."""
    exits = [one for one in scope.returns if one.stmt.value is not None]  # type: ignore[union-attr]
    values = [one.stmt.value for one in exits]  # type: ignore[union-attr]
    values += [site.expr.value for site in scope.yields if isinstance(site.expr, forms.Yield)]
    if (
        len(values) != 1
        or len(scope.returns) + len(scope.yields) != 1
        or any(isinstance(site.expr, forms.Yield) and site.expr.delegates for site in scope.yields)
    ):
        return Refused("it is returned in several ways")
    value = values[0]
    if value is None:
        return _COMPUTED
    for part, expr in _parts(value):
        if expr is call:
            return part
        if isinstance(expr, forms.Name) and _is_bound_to(scope, link, call, expr.id):
            return part
    return _COMPUTED


def _parts(value: forms.Expr) -> Iterator[tuple[_Part, forms.Expr]]:
    if isinstance(value, forms.Sequence) and not any(isinstance(item, forms.Star) for item in value.items):
        for number, item in enumerate(value.items):
            yield _Part(number, len(value.items)), item
    elif isinstance(value, forms.Dict):
        for entry in value.entries:
            if isinstance(entry.key, forms.Const) and isinstance(entry.key.value, str):
                yield _Part(entry.key.value), entry.value
    else:
        yield _Part(None), value


def _is_bound_to(scope: Scope, link: Link, call: forms.Call, name: str) -> bool:
    """Whether a name is last given the copy, always, and only returned after that."""
    stmt = link.stmt
    if not isinstance(stmt, forms.Assign) or stmt.value is not call or len(stmt.targets) != 1:
        return False
    if not isinstance(stmt.targets[0], forms.Name) or stmt.targets[0].id != name:
        return False
    facts = scope.module.facts
    end = facts.span(stmt.at)[1]
    behind = [
        expr
        for other in links_of(scope)
        for root in expressions(other.stmt)
        for expr in descend(root)
        if isinstance(expr, forms.Name) and expr.id == name and facts.span(expr.at)[0] >= end
    ]
    leaving = [one.block for one in scope.returns] + [site.link.block for site in scope.yields]
    return len(behind) == 1 and all(block is link.block for block in leaving)


def _takers(loader: Loader, use: CudaUse, scope: Scope) -> list[tuple[Loader, BatchLoop]] | Refused:
    """The loaders whose batches are in question, each with a loop that gets them."""
    project = loader.project
    found: list[tuple[Loader, BatchLoop]] = []
    for other in project.loaders:
        if not any(one.at == use.at and one.module is use.module for one in other.cuda_in_workers()):
            continue
        if other.framework or not other.is_plain or any(loop.framework for loop in other.loops):
            return Refused("a framework takes the batches")
        if not other.loops or any(call.ref.key == other.ref.key for call in project.next_calls):
            return Refused("it is not known who takes the batches")
        collates = any(option.given and not option.is_(None) for option in other.option("collate_fn"))
        if collates and not _collates_with(other, scope) or not collates and not _makes_samples(other, scope):
            return _COMPUTED
        found += [(other, loop) for loop in other.loops]
    links = {loop.link for _, loop in found}
    users = {loop.ref.key for _, loop in found}
    if any(loop.link in links and loop.ref.key not in users for loop in project.loops):
        return Refused("the loop takes batches of other loaders, too")
    return found or Refused("it is not known who takes the batches")


def _makes_samples(loader: Loader, scope: Scope) -> bool:
    """Whether what a function returns, or yields, is a sample of a loader."""
    classes = [alt.dataset.cls if alt.dataset is not None else None for alt in loader.datasets]
    return bool(classes) and all(
        cls is not None
        and scope.name in ("__getitem__", "__iter__")
        and loader.project.method(cls, scope.name) is scope
        for cls in classes
    )


def _collates_with(loader: Loader, scope: Scope) -> bool:
    """Whether what a function returns is the batch of a loader."""
    return any(
        getattr(option.value, "scope", None) is scope
        or scope.name == "__call__"
        and getattr(option.value, "cls", None) is scope.owner
        for option in loader.option("collate_fn")
    )


def _copied_in(
    loader: Loader, loop: BatchLoop, part: _Part, copy: _Copy, module: Module
) -> list[Edit | Refused] | Refused:
    """The copy at the top of a loop; nothing where it copies that part already."""
    stmt = loop.link.stmt
    if not isinstance(stmt, forms.For) or loop.inner is not None or not loop.direct:
        return Refused("the batches are not taken by a loop of its own")
    target = _target(stmt)
    if isinstance(part.key, int) and isinstance(target, forms.Sequence) and len(target.items) == part.width:
        target = target.items[part.key]
    elif isinstance(part.key, int):
        return Refused("it is not clear under which name the loop has it")
    if not isinstance(target, forms.Name):
        return Refused("it is not clear under which name the loop has it")
    name = f'{target.id}["{part.key}"]' if isinstance(part.key, str) else target.id
    copies = {transfer.call.at for transfer, _ in loader.copies()}
    if _copies_already(loop.link, target.id, part, copies):
        return []
    if copy.attribute:
        device = _given_device(loader, loop, copy.attribute)
        if not device:
            return Refused(f"the loop may not know `self.{copy.attribute}`")
        copy = _Copy(copy.text.format(device))
    known = copy.name == "torch" or loop.module is module
    if copy.name and (not known or copy.name not in loop.module.scope.names or _is_local(loop.link.scope, copy.name)):
        return Refused(f"the loop may not know `{copy.name}`")
    return [moving.insert_first(loop.module.source, loop.module.facts, loop.link, [f"{name} = {name}{copy.text}"])]


def _given_device(loader: Loader, loop: BatchLoop, attribute: str) -> str:
    """What the constructor of the dataset is given for an attribute, where the loop's function says that itself."""
    texts = set()
    for alt in loader.datasets:
        instance = alt.dataset.instance if alt.dataset is not None else None
        init = alt.dataset.init if alt.dataset is not None else None
        if instance is None or init is None or instance.args is None:
            return ""
        params = [param.name for param in init.function.params[1:]]
        stores = loader.project.stores(instance.cls, attribute)
        value = stores[0].value if len(stores) == 1 and stores[0].link.scope is init else None
        if not isinstance(value, forms.Name) or value.id not in params:
            return ""
        if any(value.id in link.changes for link in links_of(init)):
            return ""
        given = calling.argument(instance.args, value.id, params.index(value.id))
        if given is None or given.expr is None or given.point is None:
            return ""
        texts.add(_said_in(loop, given.expr, given.point))
    return texts.pop() if len(texts) == 1 else ""


def _said_in(loop: BatchLoop, expr: forms.Expr, point: Point) -> str:
    """A literal, or a name that means in a loop what it means at a point of the same function."""
    if isinstance(expr, forms.Const):
        return point.module.line(expr.at)
    scope = loop.link.scope
    if not isinstance(expr, forms.Name) or point.link.scope is not scope:
        return ""
    bound = sum(expr.id in link.changes and not link.blocks for link in links_of(scope))
    param = any(param.name == expr.id for param in scope.function.params)
    return expr.id if bound + param == 1 else ""


def _is_local(scope: Scope, name: str) -> bool:
    own = scope.names | {param.name for param in scope.function.params}
    return scope.kind == "function" and name in own - scope.not_local


def _target(stmt: forms.For) -> forms.Expr | None:
    """What a loop over a loader calls its batch, if it gets nothing else besides."""
    target: forms.Expr | None = stmt.target
    over = stmt.iter
    while isinstance(over, forms.Call) and over.args:
        if last_name(over.func) == "enumerate":
            target = target.items[1] if isinstance(target, forms.Sequence) and len(target.items) == 2 else None
        elif last_name(over.func) not in _WRAPPERS:
            break
        over = over.args[0].value
    return target if not isinstance(over, forms.Call) or last_name(over.func) != "zip" else None


def _copies_already(loop: Link, name: str, part: _Part, copies: set[int]) -> bool:
    """Whether all that a loop does with a name begins with a copy to a device."""
    facts = loop.scope.module.facts
    for link in sorted(links_in(loop), key=lambda link: facts.span(link.stmt.at)):
        for root in expressions(link.stmt):
            parents = {child.at: expr for expr in descend(root) for child in children(expr)}
            for expr in descend(root):
                if isinstance(expr, forms.Name) and expr.id == name and not _is_copied(expr, parents, part, copies):
                    return link.parent is loop and _rebinds(link, name, copies)
        if link.parent is loop and _rebinds(link, name, copies):
            return True
    return True


def _is_copied(expr: forms.Expr, parents: dict[int, forms.Expr], part: _Part, copies: set[int]) -> bool:
    """Whether a part of a batch is copied where it stands, or is another part."""
    outer = parents.get(expr.at)
    if isinstance(part.key, str):
        if not isinstance(outer, forms.Sub) or outer.value is not expr or not isinstance(outer.index, forms.Const):
            return False
        if outer.index.value != part.key:
            return True
        outer = parents.get(outer.at)
    call = parents.get(outer.at) if isinstance(outer, forms.Attr) else None
    return call is not None and call.at in copies


def _rebinds(link: Link, name: str, copies: set[int]) -> bool:
    """``x = x.to(device)``, ``x, y = x.to(device), y.to(device)``."""
    stmt = link.stmt
    if not isinstance(stmt, forms.Assign) or len(stmt.targets) != 1:
        return False
    target, value = stmt.targets[0], stmt.value
    pairs = [(target, value)]
    if isinstance(target, forms.Sequence) and isinstance(value, forms.Sequence):
        pairs = list(zip(target.items, value.items, strict=False))
    return any(dotted(one) == name and other.at in copies for one, other in pairs)


def _dropped(module: Module, link: Link, call: forms.Call) -> Edit | Refused:
    """A call without its copy or its pinning; ``x = x.cuda()`` goes as a whole."""
    source, facts = module.source, module.facts
    chosen = (part for root in expressions(link.stmt) for part in descend(root) if isinstance(part, forms.IfExp))
    if any(branch is call for part in chosen for branch in (part.body, part.orelse)):
        return Refused("that is done in some cases only")
    if isinstance(call.func, forms.Attr) and call.func.name in ("to", "cuda", "pin_memory"):
        stmt = link.stmt
        held = dotted(call.func.value)
        if isinstance(stmt, forms.Assign) and stmt.value is call and [dotted(one) for one in stmt.targets] == [held]:
            if len(link.block) == 1 and link.parent is not None:
                return Refused("that is done in some cases only")
            return mending.remove_statement(source, facts, link)
        return mending.without_method(module, call)
    name = "device" if any(arg.name == "device" for arg in call.args) else "pin_memory"
    return edits.remove_argument(source, facts, call, name, order=())


# -- pinning


def unpinned_in_worker(loader: Loader, pin: WorkerPin) -> Fix | Refused:
    """The sample or batch without the pinning, which the loader is asked for instead."""
    call, scope = _call_at(pin.module, pin.at), pin.link.scope
    if call is None:
        return Refused("it is not clear what is pinned")
    if scope.name == "pin_memory":
        return Refused(f"`{scope.qualified}` is for the loader to call, with `pin_memory=True`: do not call it there")
    if len(loader.project.callers.of(scope)) > 1:
        return Refused(f"`{scope.name}` is called from elsewhere, too")
    pinned = loader.option("pin_memory")
    changes: list[Change | Refused] = []
    if not any(option.given for option in pinned) and loader.is_plain:
        changes = [set_option(loader, pinned[0], "pin_memory", "True")]
        if any(isinstance(change, Refused) or change.shared for change in changes):
            changes = []
    words = "Remove the pinning" + (", and pass `pin_memory=True` to the loader" if changes else "")
    return fix_of("unsafe", words, changes, [_dropped(pin.module, pin.link, call)])


def not_pinned(loader: Loader, option: OptionAlt) -> Fix | Refused:
    """``pin_memory=False`` for a loader without workers, whose batches are on the GPU."""
    if any(workers.positive for workers in loader.option("num_workers")):
        return Refused("with workers the batch has to be copied in the loop: cuda-in-worker says how")
    if not all(workers.is_(0) for workers in loader.option("num_workers")):
        return Refused("it may have workers, and then the batch has to be copied in the loop")
    change = set_in_call(loader, option, "pin_memory", "False")
    if isinstance(change, Refused):
        change = set_option(loader, option, "pin_memory", "False")
    return fix_of("unsafe", "Set `pin_memory=False`", [alone(change)])
