"""Expressions that fixes write to ask whether a device is a GPU of CUDA's."""

from __future__ import annotations

from dlcheck.facts import forms
from dlcheck.model.project import Project
from dlcheck.model.scopes import Module, descend, dotted, last_name
from dlcheck.model.values import Const, Made, Point, Thunk, Unknown

_DEVICES = frozenset({"torch.device", "torch.accelerator.current_accelerator"})


def asks_for_cuda(project: Project, point: Point, device: forms.Expr | None) -> str | None:
    """``device.type == "cuda"`` of a device object, ``device == "cuda"`` of a string; None where it is not clear."""
    name = dotted(device)
    if device is None or name is None:
        return None
    project.evaluator.fresh()
    values = list(project.evaluator.values(device, point))
    if values and all(isinstance(value, Made) and value.path in _DEVICES for value in values):
        return f'{name}.type == "cuda"'
    listed = choices(project, device, point)
    if listed:  # the user's choice is one of these strings
        values = [value for value in values if not isinstance(value, Unknown)]
    texts = {value.value for value in values if isinstance(value, Const) and isinstance(value.value, str)}
    if len(texts) != len({*values}) or not texts:
        return None
    texts |= listed
    if all(text.partition(":")[0] == text for text in texts):
        return f'{name} == "cuda"'
    return f'{name}.startswith("cuda")'


def choices(project: Project, device: forms.Expr, point: Point) -> set[str]:
    """The devices that the user of the program may choose, where its parser of arguments lists them."""
    found: set[str] = set()
    values = [alt.value for alt in project.evaluator.force(Thunk(device, point))]
    for value in list(values):
        if isinstance(value, Made) and value.path == "torch.device" and value.args is not None:
            values += [alt.value for thunk, _ in value.args.positional[:1] for alt in project.evaluator.force(thunk)]
    for value in values:
        if isinstance(value, Const) and value.origin is not None:
            found |= _choices_at(value.origin.module, value.origin.at)
    return found


def _choices_at(module: Module, at: int) -> set[str]:
    """The strings of ``choices=`` beside a default."""
    start, end = module.facts.span(at)
    for site in module.calls:
        if isinstance(site.expr, forms.Call) and last_name(site.expr.func) in ("add_argument", "option"):
            first, last = module.facts.span(site.expr.at)
            if first <= start and end <= last:
                given = [arg.value for arg in site.expr.args if arg.name == "choices"]
                parts = (part for expr in given for part in descend(expr))
                return {part.value for part in parts if isinstance(part, forms.Const) and isinstance(part.value, str)}
    return set()
