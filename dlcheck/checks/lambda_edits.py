"""Lambdas that workers are sent, made functions of their module."""

from __future__ import annotations

import ast
import builtins

from dlcheck import edits
from dlcheck.checks import mending, moving
from dlcheck.checks.report import make_fix
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Edit, Fix
from dlcheck.model.flow import links_of
from dlcheck.model.processes.pickling import Obstacle
from dlcheck.model.program import is_main_guarded
from dlcheck.model.scopes import Link, Module, Scope, descend, target_names


def named_function(obstacle: Obstacle, part: str) -> Fix | Refused:
    """A function of the module in the place of a lambda; what it takes from around it goes into a ``partial``."""
    module, link = obstacle.module, obstacle.link
    form = module.inners[obstacle.at].form if module is not None and obstacle.at in module.inners else None
    if module is None or link is None or not isinstance(form, forms.Lambda):
        return Refused("it is no lambda, and may use names of the code around it")
    parts = _parts(module, form)
    if parts is None:
        return Refused("the lambda is laid out in a way that cannot be changed with certainty")
    params, body = parts
    if any(param.default is not None and not isinstance(param.default, forms.Const) for param in form.params):
        return Refused("its default values are computed")
    captured = captured_names(link.scope, form)
    if "self" in captured or any(param.kind in ("*", "**") for param in form.params) and captured:
        return Refused("it uses names of the function around it")
    if any(_only_in_main(module, name) for name in _free(form) - set(captured)):
        return Refused("it uses names that exist in the main process only")
    name = _name(module, form, part)
    given = ", ".join(filter(None, (params, *captured)))
    added = moving.add_function(module, name, [f"def {name}({given}):", f"{moving.unit(module)}return {body}"], link)
    function = name
    imports: list[Edit | Refused] = []
    if captured:
        partial, imports = partial_of(module)
        function = f"{partial}({name}, {', '.join(f'{one}={one}' for one in captured)})"
    replaced = edits.replace(module.source, module.facts, form.at, function)
    return make_fix("unsafe" if captured else "safe", f"Name it `{name}`", [replaced, *added, *imports])


def _parts(module: Module, form: forms.Lambda) -> tuple[str, str] | None:
    """The parameters and the body of a lambda as text on one line."""
    text = module.source.text[slice(*module.facts.span(form.at))]
    if "#" in text or '"""' in text or "'''" in text or "\\" in text and "\n" in text:
        return None
    line = " ".join(text.split()) if "\n" in text else text
    try:
        node = ast.parse(f"({line})", mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(node, ast.Lambda):
        return None
    body = ast.get_source_segment(f"({line})", node.body)
    ends = node.body.end_col_offset
    if body is None or ends is None or not line.isascii():
        return None
    # Parentheses around the body are no part of its node.
    before = line[: node.body.col_offset - 1].rstrip("( ")
    return (before.removeprefix("lambda").rstrip().removesuffix(":").strip(), body) if before.endswith(":") else None


def _free(form: forms.Lambda) -> set[str]:
    """The names that a lambda reads and does not bind itself."""
    own = {param.name for param in form.params}
    names = set()
    for part in descend(form.body):
        if isinstance(part, forms.Comp):
            own |= {name for clause in part.clauses for name in target_names(clause.target)}
        elif isinstance(part, forms.Lambda):
            own |= {param.name for param in part.params}
        elif isinstance(part, forms.Name):
            names.add(part.id)
    return names - own


def captured_names(scope: Scope | None, form: forms.Lambda) -> list[str]:
    """The names that a lambda takes from the functions around it, in order."""
    wanted, found = _free(form), set()
    while scope is not None:
        if scope.kind == "function":
            local = (scope.names - scope.not_local) | {param.name for param in scope.function.params}
            found |= wanted & local
        scope = scope.parent
    return sorted(found)


def _only_in_main(module: Module, name: str) -> bool:
    """Whether a name of the module is bound under its main guard only."""
    if name not in module.scope.names:
        return not hasattr(builtins, name) and not module.stars
    bound = [link for link in links_of(module.scope) if _binds(link, name)]
    return bool(bound) and all(is_main_guarded(link) for link in bound)


def _binds(link: Link, name: str) -> bool:
    if isinstance(link.stmt, (forms.Function, forms.Class)):
        return link.stmt.name == name
    if isinstance(link.stmt, (forms.Import, forms.ImportFrom)):
        return any(alias.bound == name for alias in link.stmt.aliases)
    return not link.blocks and name in link.changes


def _name(module: Module, form: forms.Lambda, part: str) -> str:
    same = isinstance(form.body, forms.Name) and [param.name for param in form.params] == [form.body.id]
    names = {"collate_fn": "identity_collate" if same else "collate_batch", "worker_init_fn": "init_worker"}
    name = names.get(part, "identity" if same else "transform_sample")
    own = part.strip("_")
    if part not in (*names, "dataset") and own.isidentifier() and not same:
        name = f"{own}_function" if _is_local(module, own) else own
    return _unlike(module, name, form)


def _is_local(module: Module, name: str) -> bool:
    """Whether a name stands for something else in a function of a module, or everywhere."""
    params = (param.name for scope in module.functions for param in scope.function.params)
    return hasattr(builtins, name) or name in params or any(name in scope.names for scope in module.functions)


def _unlike(module: Module, name: str, form: forms.Lambda) -> str:
    """The name, or one with a number where a function of that name does something else."""
    parts = _parts(module, form)
    number, taken = 2, name
    while taken in module.scope.names:
        existing = module.scope.functions.get(taken)
        if existing is not None and existing.link is not None and parts is not None:
            start, end = module.facts.span(existing.link.stmt.at)
            if module.source.text[start:end].split() == f"def {taken}({parts[0]}): return {parts[1]}".split():
                return taken
        taken, number = f"{name}_{number}", number + 1
    return taken


def partial_of(module: Module) -> tuple[str, list[Edit | Refused]]:
    """How a module writes ``functools.partial``, and the import that it takes."""
    for stmt, link in module.imports:
        if isinstance(stmt, forms.ImportFrom) and stmt.module == "functools" and link.scope is module.scope:
            for alias in stmt.aliases:
                if alias.name == "partial":
                    return alias.bound, []
    name, imports = mending.alias_of(module, "functools", "functools")
    return f"{name}.partial", imports
