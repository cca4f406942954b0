"""Expressions that fixes write to ask whether a device is a GPU of CUDA's."""

from __future__ import annotations

from dlcheck.facts import forms
from dlcheck.model.project import Project
from dlcheck.model.scopes import dotted
from dlcheck.model.values import Const, Made, Point

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
    texts = {value.value for value in values if isinstance(value, Const) and isinstance(value.value, str)}
    if len(texts) != len({*values}) or not texts:
        return None
    if all(text.partition(":")[0] == text for text in texts):
        return f'{name} == "cuda"'
    return f'{name}.startswith("cuda")'
