"""Lambdas that workers are sent, made functions of their module."""

from __future__ import annotations

import ast
import builtins
import io
import re
import symtable
import tokenize
import warnings
from collections.abc import Iterator

from dlcheck import edits
from dlcheck.checks import mending, moving
from dlcheck.checks.report import make_fix
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Edit, Fix
from dlcheck.model.flow import links_of
from dlcheck.model.processes.pickling import Obstacle
from dlcheck.model.program import is_main_guarded
from dlcheck.model.scopes import Link, Module, Scope, target_names
from dlcheck.source import split_lines

# What a longer ``return`` keeps its lines for.
_LONG = 100
# Names that mean the code around them.
_ABOUT_PLACE = frozenset({"__class__", "super", "locals", "vars", "dir", "eval", "exec"})


def named_function(obstacle: Obstacle, part: str) -> Fix | Refused:
    """A function of the module in the place of a lambda; what it takes from around it goes into a ``partial``."""
    module, link = obstacle.module, obstacle.link
    form = module.inners[obstacle.at].form if module is not None and obstacle.at in module.inners else None
    if module is None or link is None or not isinstance(form, forms.Lambda):
        return Refused("it is no lambda, and may use names of the code around it")
    if module.source.cells:
        return Refused("workers cannot import what a notebook defines: it has to become a function of a module")
    whole = _Lambda.of(module, form)
    if whole is None:
        return Refused("the lambda is laid out in a way that cannot be changed with certainty")
    if any(param.default is not None and not isinstance(param.default, forms.Const) for param in form.params):
        return Refused("its default values are computed")
    free, captured = whole.free(), captured_names(module, link.scope, form)
    if free & _ABOUT_PLACE or any(map(_is_private, whole.identifiers())):
        return Refused("what its names mean depends on where it stands")
    if "self" in captured or any(param.kind in ("*", "**") for param in form.params) and captured:
        return Refused("it uses names of the function around it")
    if any(_only_in_main(module, name) for name in free - set(captured)):
        return Refused("it uses names that exist in the main process only")
    name, after = _name(module, whole, part)
    lines = whole.function(name, captured, moving.unit(module))
    if lines is None:
        return Refused("the lambda is laid out in a way that cannot be changed with certainty")
    added = moving.add_function(module, name, lines, link, after)
    function = name
    imports: list[Edit | Refused] = []
    if captured:
        partial, imports = partial_of(module)
        function = f"{partial}({name}, {', '.join(f'{one}={one}' for one in captured)})"
    replaced = edits.replace(module.source, module.facts, form.at, function)
    return make_fix("unsafe" if captured else "safe", f"Name it `{name}`", [replaced, *added, *imports])


class _Lambda:
    """A lambda as text, and what Python reads in it."""

    def __init__(self, module: Module, form: forms.Lambda, node: ast.Lambda, line: str) -> None:
        self.form = form
        self.node = node
        self.line = line  # the lambda on one line
        self.text = module.source.text[slice(*module.facts.span(form.at))]

    @classmethod
    def of(cls, module: Module, form: forms.Lambda) -> _Lambda | None:
        text = module.source.text[slice(*module.facts.span(form.at))]
        node = _read(text)
        line = None if node is None else mending.one_line(text)
        return None if node is None or line is None else cls(module, form, node, line)

    def free(self) -> set[str]:
        """The names that it reads and does not bind itself."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            todo = [symtable.symtable(f"({self.line})", "lambda", "eval")]
        names: set[str] = set()
        while todo:
            table = todo.pop()
            names |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
            todo += table.get_children()
        return names - {".0"}

    def identifiers(self) -> Iterator[str]:
        for node in ast.walk(self.node):
            if isinstance(node, ast.Name):
                yield node.id
            elif isinstance(node, ast.Attribute):
                yield node.attr
            elif isinstance(node, ast.arg):
                yield node.arg

    def function(self, name: str, captured: list[str], unit: str) -> list[str] | None:
        """The lines of a function that does the same; None where it would not."""
        split = _colon(self.line)
        if split is None:
            return None
        params = self.line[:split].removeprefix("lambda").strip()
        given = [params] if params else []
        if captured and any(param.default is not None for param in self.form.params):
            given += [] if any(param.kind == "keyword" for param in self.form.params) else ["*"]
        head = f"def {name}({', '.join((*given, *captured))}):"
        for body in self._bodies(self.line[split + 1 :].strip(), unit):
            lines = [head, *f"{unit}return {body}".split("\n")]
            if self._is_same("\n".join(lines), captured):
                return lines
        return None

    def _bodies(self, body: str, unit: str) -> Iterator[str]:
        """What may stand behind ``return``, the best first: without brackets around it all, in its lines if long."""
        if len(f"{unit}return {body}") > _LONG and "\n" in self.text:
            split = _colon(self.text)
            if split is not None:
                first, *others = self.text[split + 1 :].strip().splitlines()
                deep = unit * 2
                yield "\n".join((first, *_at_depth(others, unit if others[-1].lstrip()[:1] in ")]}" else deep)))
                yield "\n".join((f"(\n{deep}{first}", *_at_depth(others, deep), f"{unit})"))
        if body.startswith("(") and body.endswith(")"):
            yield body[1:-1].strip()
        yield body

    def _is_same(self, function: str, captured: list[str]) -> bool:
        """Whether a function takes what the lambda takes, and gives the same."""
        try:
            module = mending.parsed(function)
        except (SyntaxError, ValueError):
            return False
        made = module.body[0] if isinstance(module, ast.Module) and len(module.body) == 1 else None
        if not isinstance(made, ast.FunctionDef) or len(made.body) != 1:
            return False
        (given,) = made.body
        args = made.args
        for group in (args.args, args.kwonlyargs):
            for one in [one for one in group if one.arg in captured]:
                if group is args.kwonlyargs:
                    args.kw_defaults.pop(group.index(one))
                group.remove(one)
        if not isinstance(given, ast.Return) or given.value is None or ast.dump(args) != ast.dump(self.node.args):
            return False
        # ``return a, b`` and ``return *a, b`` say the same as with brackets.
        return ast.dump(given.value) == ast.dump(self.node.body)


def _read(text: str) -> ast.Lambda | None:
    try:
        whole = mending.parsed(f"({text}\n)", "eval")
    except (SyntaxError, ValueError):
        return None
    return whole.body if isinstance(whole, ast.Expression) and isinstance(whole.body, ast.Lambda) else None


def _at_depth(lines: list[str], indent: str) -> list[str]:
    """Lines of which the least deep takes a new indentation."""
    least = min((mending.indentation(line, 0) for line in lines if line.strip()), key=len)
    return [indent + line.removeprefix(least) for line in lines]


def _colon(text: str) -> int | None:
    """Where the colon of a lambda stands, behind its parameters."""
    depth = lambdas = 0
    try:
        starts = [0]
        for line in split_lines(text):
            starts.append(starts[-1] + len(line))
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if token.type == tokenize.OP and token.string in ("(", "[", "{"):
                depth += 1
            elif token.type == tokenize.OP and token.string in (")", "]", "}"):
                depth -= 1
            elif token.string == "lambda" and not depth:
                lambdas += 1
            elif token.string == ":" and token.type == tokenize.OP and not depth:
                lambdas -= 1
                if not lambdas:
                    return starts[token.start[0] - 1] + token.start[1]
    except (tokenize.TokenError, SyntaxError):
        return None
    return None


def _is_private(name: str) -> bool:
    """Whether a class changes a name."""
    return name.startswith("__") and not name.endswith("__")


def captured_names(module: Module, scope: Scope | None, form: forms.Lambda) -> list[str]:
    """The names that a lambda takes from the functions, lambdas and comprehensions around it, in order."""
    whole = _Lambda.of(module, form)
    wanted, found = set() if whole is None else whole.free(), set[str]()
    around = module.inners[form.at].parent if form.at in module.inners else None
    while around is not None:
        if isinstance(around.form, forms.Lambda):
            found |= wanted & {param.name for param in around.form.params}
        else:
            found |= {name for clause in around.form.clauses for name in target_names(clause.target)} & wanted
        around = around.parent
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


def _name(module: Module, whole: _Lambda, part: str) -> tuple[str, str]:
    """A name for the function, and the function of like name that it should stand behind."""
    form = whole.form
    same = isinstance(form.body, forms.Name) and [param.name for param in form.params] == [form.body.id]
    names = {"collate_fn": "identity_collate" if same else "collate_batch", "worker_init_fn": "init_worker"}
    name = names.get(part, "identity" if same else "transform_sample")
    own = part.strip("_")
    if part not in (*names, "dataset") and own.isidentifier() and not same:
        name = f"{own}_function" if _is_local(module, own) else own
    return _unlike(module, name, whole)


def _is_local(module: Module, name: str) -> bool:
    """Whether a name stands for something else in a function of a module, or everywhere."""
    params = (param.name for scope in module.functions for param in scope.function.params)
    return hasattr(builtins, name) or name in params or any(name in scope.names for scope in module.functions)


def _unlike(module: Module, name: str, whole: _Lambda) -> tuple[str, str]:
    """The name, or one with a number where a function of that name does something else; and the one before."""
    number, taken, before = 2, name, ""
    while taken in module.scope.names or _is_mentioned(module, taken):
        lines = whole.function(taken, captured_names(module, None, whole.form), moving.unit(module))
        if lines is not None and moving.has_function(module, taken, lines):
            return taken, before
        before = taken if taken in module.scope.functions else before
        taken, number = f"{name}_{number}", number + 1
    return taken, before


def _is_mentioned(module: Module, name: str) -> bool:
    """Whether a name means something in a function, or may come from a ``*`` import."""
    if module.stars and re.search(rf"\b{name}\b", module.source.text):
        return True
    params = (param.name for scope in module.functions for param in scope.function.params)
    return name in params or any(name in scope.names for scope in module.functions)


def partial_of(module: Module) -> tuple[str, list[Edit | Refused]]:
    """How a module writes ``functools.partial``, and the import that it takes."""
    for stmt, link in module.imports:
        if isinstance(stmt, forms.ImportFrom) and stmt.module == "functools" and link in module.scope.body:
            for alias in stmt.aliases:
                if alias.name == "partial":
                    return alias.bound, []
    name, imports = mending.alias_of(module, "functools", "functools")
    return f"{name}.partial", imports
