"""``self.hparams`` of Lightning: the arguments of the constructor, as ``save_hyperparameters()`` kept them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model.scopes import Link, Scope, dotted
from dlcheck.model.values import Alt, Frame, Mapping, Point, Thunk
from dlcheck.model.worlds import ANY

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator

ATTRIBUTE = "hparams"


def saved(ev: Evaluator, init: Scope, frame: Frame) -> list[Alt] | None:
    """What ``self.hparams`` is after a constructor; None where that does not save it."""
    params = init.function.params
    if not params:
        return None
    for site in init.module.calls_by_scope.get(init, ()):
        call = site.expr
        if isinstance(call, forms.Call) and dotted(call.func) == f"{params[0].name}.save_hyperparameters":
            return _kept(ev, init, frame, call, site.link)
    return None


def _kept(ev: Evaluator, init: Scope, frame: Frame, call: forms.Call, link: Link) -> list[Alt] | None:
    given = [arg.value for arg in call.args if arg.name is None]
    names = [arg.value for arg in given if isinstance(arg, forms.Const)]
    if len(names) < len(given):  # save_hyperparameters(args)
        return ev.eval(given[0], Point(frame, link)) if len(given) == 1 else None
    ignored = {
        part.value for arg in call.args if arg.name == "ignore"
        for part in (arg.value.items if isinstance(arg.value, forms.Sequence) else (arg.value,))
        if isinstance(part, forms.Const)
    }  # fmt: skip
    entries = tuple(
        (param.name, Thunk(forms.Name(param.name, param.at), Point(frame, init.body[0])))
        for param in init.function.params[1:]
        if param.kind in ("positional", "normal", "keyword") and param.name not in ignored
        if not names or param.name in names
    )
    return [Alt(Mapping(entries, True), ANY)]
