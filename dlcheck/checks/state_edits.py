"""Fixes for what a dataset keeps and no other process can receive: named functions, and objects made anew there."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field

from dlcheck import edits
from dlcheck.checks import class_edits, mending
from dlcheck.checks.lambda_edits import captured_names, named_function, partial_of
from dlcheck.checks.report import make_fix
from dlcheck.checks.settled import Settled
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Edit, Fix
from dlcheck.model.datasets import DatasetClass
from dlcheck.model.processes.pickling import OBJECTS, Attribute, kept_attributes
from dlcheck.model.scopes import Link, Module, Scope, Site, dotted, last_name

# What is as good when it is made anew: nothing is kept in it.
_REMADE = {
    OBJECTS[path]: path.rpartition(".")[2]
    for path in (
        "threading.Lock", "threading.RLock", "threading.Condition", "threading.Semaphore", "threading.BoundedSemaphore",
        "threading.local", "concurrent.futures.ThreadPoolExecutor", "cv2.createCLAHE", "cv2.ORB_create",
        "cv2.SIFT_create",
    )
}  # fmt: skip
# The type that gives what a lambda without parameters gives.
_EMPTY = {"list": "list", "dict": "dict", "set": "set", "tuple": "tuple"}


def sendable(dataset: DatasetClass, attribute: Attribute) -> Fix | Refused:
    """A fix for one attribute of a dataset that workers cannot be sent."""
    obstacle = attribute.obstacle
    if obstacle.module is not None and obstacle.at in obstacle.module.inners and obstacle.link is not None:
        return _named(attribute, obstacle.module, obstacle.link)
    if obstacle.module is not None:
        return Refused("a function inside another may use names of the code around it")
    if obstacle.what == OBJECTS["torch.Generator"]:
        return Refused("each worker needs a seed of its own: which one is for the author to say")
    if obstacle.what == "a generator":
        return Refused("a generator can be gone through only once: whether a list may take its place is not known")
    if obstacle.what not in _REMADE:
        return Refused("it may hold something that would be lost on the way")
    owner = attribute.link.scope.owner
    if owner is None or attribute.link.scope.name != "__init__":
        return Refused("it is not made in `__init__` itself")
    plan = _Plan(dataset, owner, attribute.link.scope)
    reason = plan.obstacle()
    return Refused(reason) if reason else make_fix("unsafe", "Make it anew in each worker", [*plan.edits()])


# -- lambdas


def _named(attribute: Attribute, module: Module, link: Link) -> Fix | Refused:
    form = module.inners[attribute.obstacle.at].form
    if not isinstance(form, forms.Lambda):
        return Refused("it is no lambda")
    stmt = attribute.link.stmt
    value = stmt.value if isinstance(stmt, (forms.Assign, forms.Declare)) else None
    if isinstance(value, forms.Call) and last_name(value.func) == "defaultdict" and value.args[0].value == form:
        text = _default(module, link, form)
        if text is not None:
            type_, imports = text
            replaced = edits.replace(module.source, module.facts, form.at, type_)
            return make_fix("safe", f"Write `{type_}`", [replaced, *imports])
    params = {param.name for param in link.scope.function.params}
    others = [
        name for name in captured_names(module, link.scope, form) if name not in params or name in _rebound(link.scope)
    ]
    if others:
        return Refused(f"it uses `{others[0]}` of the function around it")
    return named_function(attribute.obstacle, _kept_as(link, form))


def _kept_as(link: Link, form: forms.Lambda) -> str:
    """The attribute that a lambda is; "dataset" where it lies inside of one."""
    stmt = link.stmt
    target = stmt.targets[0] if isinstance(stmt, forms.Assign) and stmt.value == form else None
    return target.name if isinstance(target, forms.Attr) else "dataset"


def _rebound(scope: Scope) -> set[str]:
    from dlcheck.model.flow import links_of

    return {name for link in links_of(scope) for name in link.changes}


def _default(module: Module, link: Link, form: forms.Lambda) -> tuple[str, list[Edit | Refused]] | None:
    """``list`` for ``lambda: []``, ``partial(defaultdict, int)`` for ``lambda: defaultdict(int)``."""
    body = form.body
    if form.params:
        return None
    name, imports, text = "", list[Edit | Refused](), ""
    if isinstance(body, forms.Sequence) and not body.items:
        name = _EMPTY[body.kind]
    elif isinstance(body, forms.Dict) and not body.entries:
        name = "dict"
    elif isinstance(body, forms.Const) and body.value in (0, "", False) and type(body.value) is not complex:
        name = type(body.value).__name__
    elif isinstance(body, forms.Call) and not body.args and dotted(body.func) in _EMPTY:
        name = dotted(body.func) or ""
    elif isinstance(body, forms.Call) and last_name(body.func) == "defaultdict" and len(body.args) == 1:
        name = dotted(body.args[0].value) or ""
        partial, imports = partial_of(module)
        text = f"{partial}({module.line(body.func.at)}, {name})"
    if not hasattr(builtins, name) or name in module.scope.names or name in link.scope.names:
        return None
    return text or name, imports


# -- objects


@dataclass
class _Plan:
    """All objects of one class that are made anew, for they share its ``__getstate__``."""

    dataset: DatasetClass
    owner: Scope
    init: Scope
    made: dict[str, str] = field(default_factory=dict)  # the attribute, and what makes it

    def __post_init__(self) -> None:
        self.project = self.dataset.project
        self.classes = class_edits.family(self.project, self.owner)
        self.own = class_edits.own_name(self.init)

    def obstacle(self) -> str:
        """Why the class cannot say what is pickled, if so."""
        if not self.own or self.init.module is not self.owner.module:
            return "the class is built in an unusual way"
        if any(cls.functions.keys() & {"__setstate__", "__copy__", "__deepcopy__"} for cls in self.classes):
            return "the class says itself how it is copied"
        strange = [base for base in self.dataset.bases if base not in mending.PLAIN_BASES]
        if any(not base.startswith("torchvision.datasets.") for base in strange):
            return "a base of the class may say how it is copied"
        handle = next(iter(self.dataset.handles), None)
        if handle is not None:
            return f"`self.{handle.attribute}` is an open file: each process has to open its own first"
        unusual = class_edits.unusual(self.classes)
        if unusual:
            return unusual
        for attribute in kept_attributes(self.dataset):
            reason = self._add(attribute)
            if reason:
                return reason
        return ""

    def _add(self, attribute: Attribute) -> str:
        name, link = attribute.name, attribute.link
        stmt = link.stmt
        call = stmt.value if isinstance(stmt, (forms.Assign, forms.Declare)) else None
        kind = _REMADE.get(attribute.obstacle.what, "")
        if attribute.obstacle.module is not None or not kind or link.scope is not self.init:
            return f"`self.{name}` cannot be sent either: `__getstate__` would hide that"
        if not isinstance(call, forms.Call) or last_name(call.func) != kind:
            return f"what makes `self.{name}` is not written where it is kept"
        single = isinstance(stmt, forms.Declare) or isinstance(stmt, forms.Assign) and len(stmt.targets) == 1
        if not single or link.parent is not None:
            return f"`self.{name}` is not set once, at the top of `__init__`"
        if class_edits.set_elsewhere(self.project, self.classes, name):
            return f"`self.{name}` is set elsewhere, too"
        for use in class_edits.uses(self.project, self.classes, name):
            if not use.is_own:
                return f"`{use.module.line(use.expr.at)}` is used outside of the class"
            if use.link is not link and use.link.scope.name == "__init__":
                return f"`__init__` does more with `self.{name}`"
        names = {last_name(site.expr.func) for site in self._calls(link) if isinstance(site.expr, forms.Call)}
        text = Settled(self.project, self.owner, self.init, names).text(call)
        if isinstance(text, Refused):
            return text.reason
        self.made[name] = " ".join(text.split())
        return ""

    def _calls(self, link: Link) -> list[Site]:
        return self.init.module.calls_in(link)

    def edits(self) -> Iterator[Edit | Refused]:
        own, names = self.own, [self._mangled(name) for name in self.made]
        quoted = ", ".join(f'"{name}"' for name in names)
        test = f"!= {quoted}" if len(names) == 1 else f"not in ({quoted})"
        state = [
            f"def __getstate__({own}):",
            f"    return {{name: value for name, value in {own}.__dict__.items() if name {test}}}",
        ]
        back = [f"def __setstate__({own}, state):", f"    {own}.__dict__.update(state)"]
        back += [f"    {own}.{name} = {text}" for name, text in self.made.items()]
        module = self.owner.module
        yield mending.add_methods(module.source, module.facts, self.init, [state, back])

    def _mangled(self, name: str) -> str:
        """The name by which ``__dict__`` knows an attribute."""
        private = name.startswith("__") and not name.endswith("__")
        return f"_{self.owner.name.lstrip('_')}{name}" if private else name
