"""Options of loaders, changed in the text: in the constructor's call, or where their values live.

An option may be an argument of the constructor, an entry of a dict that is unpacked there, a constant, or a
default that a user or a caller can override.  What others read as well is ``shared``: changing it is not safe.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from dlcheck import edits
from dlcheck.checks.report import make_fix
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Applicability, Edit, Fix
from dlcheck.model import library
from dlcheck.model.loaders import Loader, OptionAlt, constructions
from dlcheck.model.project import Project
from dlcheck.model.scopes import Link, Module, Scope, descend, dotted, expressions, last_name
from dlcheck.model.values import Const, Origin


class Change(NamedTuple):
    """A change of a call, a dict literal, or a single value.

    ``where`` says in words where that is, "" in the constructor's call; ``shared`` whether others read the value;
    ``open`` whether nobody here knows, since it is a default.
    """

    module: Module
    form: forms.Expr
    step: edits.Step
    where: str = ""
    shared: bool = False
    open: bool = False


# -- putting a fix together


def fix_of(
    applicability: Applicability,
    message: str,
    changes: Sequence[Change | Refused],
    others: Iterable[Edit | Refused] = (),
) -> Fix | Refused:
    """All changes, and ``others`` besides, as one fix; unsafe where a value is shared."""
    groups: dict[tuple[Module, int], list[Change]] = {}
    for change in changes:
        if isinstance(change, Refused):
            return change
        groups.setdefault((change.module, change.form.at), []).append(change)
    own = [change for group in groups.values() for change in group]
    where = " and ".join(dict.fromkeys(change.where for change in own if change.where))
    kind: Applicability = "unsafe" if any(change.shared for change in own) else applicability
    made = [_edit(group) for group in groups.values()]
    return make_fix(kind, f"{message} {where}".rstrip(), [*made, *others], alters=bool(changes))


def _edit(group: list[Change]) -> Edit | Refused:
    module, form = group[0].module, group[0].form
    steps = [change.step for change in group]
    if isinstance(form, (forms.Call, forms.Dict)):
        return edits.in_turn(module.source, module.facts, form, steps)
    return steps[0](module.source, module.facts, form)


def alone(change: Change | Refused) -> Change | Refused:
    """A change that would be wrong for others: refused where others read the value."""
    if isinstance(change, Refused) or not change.shared:
        return change
    what = f"what is set {change.where}" if change.where else "the call"
    return Refused(f"{what} may serve callers elsewhere" if change.open else f"{what} serves others as well")


def workers_text(loader: Loader) -> str | Refused:
    """The number of workers as the constructor's call names it, to be named there once more; "" if it is certain.

    It is certain where every caller gives workers and no user can take them away.
    """
    known = [option for other in siblings(loader) for option in other.option("num_workers")]
    if all(option.positive and not is_free(option) for option in known):
        return ""
    given = argument(loader, "num_workers")
    if given is None:
        return Refused("the number of its workers is given elsewhere, and may be 0")
    text = loader.module.line(given.at)
    return text if dotted(given) is not None else Refused(f"`{text}` may be 0, and is no simple name")


def argument_text(loader: Loader, name: str) -> str | None:
    """What the constructor's call says of an option, if it is a literal or a name."""
    given = argument(loader, name)
    simple = isinstance(given, forms.Const) or dotted(given) is not None
    return loader.module.line(given.at) if given is not None and simple else None


def is_literal(loader: Loader, option: OptionAlt) -> bool:
    """Whether an option is absent, or a literal where it is written: nobody gives another value."""
    if option.module is None:
        return isinstance(option.value, Const)
    holder = _holder(loader.project, option.module, option.at)
    return holder is not None and isinstance(holder.value, forms.Const) and not is_free(option)


def argument(loader: Loader, name: str) -> forms.Expr | None:
    """An argument of the constructor's call, by its name or by its place."""
    args = loader.call.args
    named = next((arg.value for arg in args if arg.name == name), None)
    if named is not None or any(arg.star == "*" for arg in args):
        return named
    plain, order = [arg.value for arg in args if arg.name is None and not arg.star], _order(loader)
    number = order.index(name) if name in order else len(plain)
    return plain[number] if number < len(plain) else None


def is_free(option: OptionAlt) -> bool:
    """Whether it is a default that a user or a caller can override."""
    return isinstance(option.value, Const) and option.value.free is not None


# -- one option


def set_option(loader: Loader, option: OptionAlt, name: str, text: str) -> Change | Refused:
    """Give an option the value ``text``: where it is written, else behind the constructor's arguments."""
    if option.module is None:
        return _added(loader, name, text)
    holder = _holder(loader.project, option.module, option.at)
    if holder is None:
        return _not_found(name)
    if isinstance(holder.value, forms.Const):
        return _set(loader, holder, name, text)
    return _at_origin(loader, holder, option, name, text)


def set_in_call(loader: Loader, option: OptionAlt, name: str, text: str) -> Change | Refused:
    """Give an option the value ``text`` in the constructor's call, whatever its value there is."""
    if option.module is None:
        return _added(loader, name, text)
    holder = _holder(loader.project, option.module, option.at)
    if holder is None or holder.form is not loader.call:
        return Refused(f"`{name}` is not set in the call of `{loader.class_name}`")
    return _set(loader, holder, name, text)


def rename_in_call(loader: Loader, option: OptionAlt, name: str, other: str) -> Change | Refused:
    """Give what is written for one option to another one, in the constructor's call."""
    holder = _holder(loader.project, option.module, option.at) if option.module is not None else None
    if holder is None or holder.form is not loader.call:
        return Refused(f"`{name}` is not set in the call of `{loader.class_name}`")
    step = partial(edits.rename_argument, name=name, other=other, order=_order(loader))
    return _written(loader, holder, loader.call, step)


def remove_option(loader: Loader, option: OptionAlt, name: str) -> Change | Refused:
    """Remove an option where it is written: an argument, or an entry of a dict literal."""
    if option.module is None:
        return Refused(f"`{name}` is not given")
    holder = _holder(loader.project, option.module, option.at)
    if holder is None:
        return _not_found(name)
    key = holder.name
    if isinstance(holder.form, forms.Dict) and key:
        return _written(loader, holder, holder.form, partial(edits.remove_entry, key=key))
    if holder.form is loader.call:
        return _written(
            loader, holder, loader.call, partial(edits.remove_argument, name=key or name, order=_order(loader))
        )
    if isinstance(holder.form, forms.Call) and key:
        return _written(loader, holder, holder.form, partial(edits.remove_argument, name=key, order=()))
    return Refused(f"`{name}` is set by a statement of its own")


def _set(loader: Loader, holder: _Holder, name: str, text: str) -> Change | Refused:
    form, key = holder.form, holder.name
    if isinstance(form, forms.Dict) and key:
        return _written(loader, holder, form, partial(edits.set_entry, key=key, value=text))
    if isinstance(form, forms.Call) and (key or form is loader.call):
        order = _order(loader) if form is loader.call else ()
        return _written(loader, holder, form, partial(edits.set_argument, name=key or name, value=text, order=order))
    return _written(loader, holder, holder.value, _replacing(text))


def _replacing(text: str) -> edits.Step:
    return lambda source, facts, form: edits.replace(source, facts, form.at, text)


def _order(loader: Loader) -> Sequence[str]:
    return library.LOADER_CLASSES.get(loader.path, library.LOADER_PARAMETERS)


def _not_found(name: str) -> Refused:
    return Refused(f"it is not clear where `{name}` is written")


def siblings(loader: Loader) -> list[Loader]:
    """The loaders of the same constructor call, as other callers see it; the loader itself is one."""
    return [other for other in loader.project.loaders if other.constructor == loader.constructor]


def serves_several(loader: Loader) -> bool:
    """Whether the constructor's call stands in a function that is called from several places."""
    scope: Scope | None = loader.link.scope
    seen: set[Scope] = set()
    while scope is not None and scope.kind == "function" and scope not in seen:
        seen.add(scope)
        callers = loader.project.callers.of(scope)
        if len(callers) > 1:
            return True
        scope = callers[0][1].link.scope if callers else None
    return False


def _added(loader: Loader, name: str, text: str) -> Change | Refused:
    known = [option for other in siblings(loader) for option in other.option(name)]
    if any(option.given for option in known):
        return Refused(f"some callers set `{name}`")
    refused = _takes_no(loader, name)
    if refused is not None:
        return refused
    absent = all(isinstance(option.value, Const) for option in known)
    step = partial(edits.add_argument, name=name, value=text, order=_order(loader), absent=absent)
    return Change(loader.module, loader.call, step, shared=serves_several(loader))


def _takes_no(loader: Loader, name: str) -> Refused | None:
    """Why a subclass cannot be given an option: its own ``__init__`` does not hand it on."""
    maker, args = loader.ref.maker, loader.ref.args
    plain = [arg for arg in loader.call.args if arg.name is None and arg.star != "**"]
    if len(plain) != len(args.positional):
        return Refused("some of its arguments are given elsewhere")
    if not isinstance(maker, Scope) or loader.project.method(maker, "__init__") is None:
        return None
    handed_on = all(found.args.spreads for found in constructions(loader.project.evaluator, loader.ref))
    return None if handed_on else Refused(f"`{maker.name}` has arguments of its own")


# -- where a value is written


class _Holder(NamedTuple):
    """A value in the text; the call or dict literal that it is an argument or entry of, and its name there."""

    module: Module
    link: Link
    value: forms.Expr
    form: forms.Call | forms.Dict | None
    name: str | None


def _holder(project: Project, module: Module, at: int) -> _Holder | None:
    """What an argument, an entry or a value stands for."""
    link = project.link_at(module, at)
    alone = None
    for root in expressions(link.stmt):
        for expr in descend(root):
            for name, value, own in _parts(expr):
                if at in (own, value.at):
                    assert isinstance(expr, (forms.Call, forms.Dict))
                    return _Holder(module, link, value, expr, name)
            if expr.at == at:
                alone = _Holder(module, link, expr, None, None)
    return alone


def _parts(expr: forms.Expr) -> Iterator[tuple[str | None, forms.Expr, int]]:
    """The arguments of a call and the entries of a dict literal: name, value, node."""
    if isinstance(expr, forms.Call):
        yield from ((arg.name, arg.value, arg.at) for arg in expr.args if not arg.star)
    elif isinstance(expr, forms.Dict):
        for entry in expr.entries:
            if isinstance(entry.key, forms.Const) and isinstance(entry.key.value, str):
                yield entry.key.value, entry.value, entry.at


def _written(loader: Loader, holder: _Holder, form: forms.Expr, step: edits.Step) -> Change | Refused:
    """A change of what a holder holds."""
    project, module = loader.project, holder.module
    if module is loader.module and _lies_in(module, holder.value.at, loader.call.at):
        return Change(module, form, step, shared=serves_several(loader))
    shared = any(
        project.shares_option(module, at) for at in (holder.value.at, module.arguments.get(holder.value.at, -1))
    )
    name = _assigned_name(holder)
    if name is None:
        callee = last_name(holder.form.func) if isinstance(holder.form, forms.Call) else ""
        line = module.source.place(*module.facts.span(holder.value.at)).line
        return Change(module, form, step, f"in the call of `{callee}`" if callee else f"in line {line}", shared)
    shared = shared or _reads(project, module, holder.link.scope, name) > 1
    return Change(module, form, step, f"where `{name}` holds it", shared)


def _lies_in(module: Module, at: int, outer: int) -> bool:
    (start, end), (first, last) = module.facts.span(at), module.facts.span(outer)
    return first <= start and end <= last


def _assigned_name(holder: _Holder) -> str | None:
    """The name of the options among which a value stands: of ``options["workers"] = 4`` it is ``options``."""
    stmt, form = holder.link.stmt, holder.form
    if isinstance(form, forms.Call) and last_name(form.func) in ("update", "setdefault"):
        return dotted(form.func.value) if isinstance(form.func, forms.Attr) else None
    if isinstance(form, forms.Call) and last_name(form.func) not in ("dict", "partial"):
        return None
    if isinstance(stmt, forms.Assign) and len(stmt.targets) == 1 and stmt.value in (form, holder.value):
        target = stmt.targets[0]
        return dotted(target.value if isinstance(target, forms.Sub) else target)
    if isinstance(stmt, forms.Declare) and stmt.value in (form, holder.value):
        return dotted(stmt.target)
    return None


def _reads(project: Project, module: Module, scope: Scope, name: str) -> int:
    """How often a name stands beside its definition, wherever it can mean that; at least so often it is read."""
    last = name.rpartition(".")[2]
    word = re.compile(rf"\b{re.escape(last)}\b")
    if "." not in name and scope.kind == "function" and scope.link is not None:
        start, end = module.facts.span(scope.link.stmt.at)
        return len(word.findall(module.source.text, start, end)) - 1
    project.mention(last)
    return sum(_uses(word, other, module) for other in project.loaded() if last in other.source.text)


def _uses(word: re.Pattern[str], other: Module, home: Module) -> int:
    """How often a word stands in a module, its definition or import not counted."""
    found = len(word.findall(other.source.text))
    return found - 1 if found and other is home else max(found - 1, 1) if found else 0


# -- where a value comes from


def _at_origin(loader: Loader, holder: _Holder, option: OptionAlt, name: str, text: str) -> Change | Refused:
    """The value of a name: a constant, or the default of a flag or a parameter."""
    value, said = option.value, holder.module.line(holder.value.at)
    if not isinstance(value, Const):
        return Refused(f"`{said}` is computed")
    if isinstance(holder.value, (forms.Name, forms.Attr, forms.Sub)):
        if value.origin is not None:
            return _default(loader.project, value.origin, said, text)
        found = _constant(loader.project, holder.module, holder.link.scope, holder.value)
        if found is not None:
            return _changed_constant(loader.project, *found, text)
    return Refused(f"`{name}` comes from `{said}`")


def _default(project: Project, origin: Origin, said: str, text: str) -> Change | Refused:
    """The default of a flag, of a parameter, or of a node of a configuration."""
    module = origin.module
    if not text.isdigit():
        return Refused(
            f"`{said}` is for its callers and users to choose"
        )  # a default of theirs, no number to begin with
    for scope in module.functions:
        for param in scope.function.params:
            if param.at == origin.at and isinstance(param.default, forms.Const):
                return Change(module, param.default, _replacing(text), f"by the {origin.words}", shared=True, open=True)
    holder = _holder(project, module, origin.at)
    if holder is None:
        return Refused(f"{origin.words} decides it")
    call = holder.value
    if isinstance(call, forms.Const):
        return Change(module, call, _replacing(text), f"by the {origin.words}", shared=True, open=True)
    if not isinstance(call, forms.Call) or not _has_plain_default(call):
        return Refused(f"`{said}` is for the user to choose")
    step = partial(edits.set_argument, name="default", value=text, order=())
    return Change(module, call, step, f"by the {origin.words}", shared=True, open=True)


def _has_plain_default(call: forms.Call) -> bool:
    """Whether it declares an option with a value, not a flag, whose default is a literal."""
    given = {arg.name: arg.value for arg in call.args}
    flag = "action" in given or "is_flag" in given
    return isinstance(given.get("default"), forms.Const) and not flag


def _constant(
    project: Project, module: Module, scope: Scope, expr: forms.Expr
) -> tuple[Module, Link, str, forms.Const] | None:
    """The only assignment that gives a name its value, a literal."""
    if not isinstance(expr, forms.Name):
        return None
    here: Scope | None = scope
    while here is not None and (expr.id not in here.names or here.kind == "class" and here is not scope):
        here = here.parent
    if here is None or any(param.name == expr.id for param in here.function.params):
        return None
    for stmt, link in module.imports:
        if isinstance(stmt, forms.ImportFrom) and link.scope is here:
            for alias in stmt.aliases:
                if alias.bound == expr.id:
                    other = project.imports.find_module(module, stmt.module, stmt.level)
                    return _only_assignment(other, other.scope, alias.name) if other is not None else None
    return _only_assignment(module, here, expr.id)


def _only_assignment(module: Module, scope: Scope, name: str) -> tuple[Module, Link, str, forms.Const] | None:
    binding = [link for link in module.links.values() if link.scope is scope and name in link.changes]
    stmt = binding[0].stmt if len(binding) == 1 else None
    if isinstance(stmt, (forms.Assign, forms.Declare)) and isinstance(stmt.value, forms.Const):
        return module, binding[0], name, stmt.value
    return None


def _changed_constant(
    project: Project, module: Module, link: Link, name: str, value: forms.Const, text: str
) -> Change | Refused:
    shared = _reads(project, module, link.scope, name) > 1
    if shared and isinstance(value.value, bool):
        return Refused(f"`{name}` is read elsewhere too")
    return Change(module, value, _replacing(text), f"where `{name}` is set", shared)
