"""Whether a piece of code only reads a tensor that it has under a name, or may edit it or keep it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from dlcheck.checks.name_uses import lies_within, mentions, uses
from dlcheck.facts import forms
from dlcheck.model.flow import links_of
from dlcheck.model.project import Project
from dlcheck.model.scopes import Link, children, descend, expressions, last_name
from dlcheck.model.values import External, Func

Answer: TypeAlias = 'Literal["read", "given", "unknown", "edited"]'

_FACTS = frozenset({"shape", "dtype", "device", "ndim", "is_cuda"})
# Methods and functions of torch whose result is a tensor of its own, or none.
_FRESH = frozenset(
    {"sum", "mean", "std", "var", "item", "tolist", "clone", "size", "numel", "dim", "exp", "log", "sqrt", "pow", "abs",
     "mul", "add", "sub", "div", "matmul", "mm", "bmm", "repeat", "argmax", "argmin", "norm", "index_select", "gather",
     "eq", "ne", "gt", "lt", "ge", "le", "any", "all", "cumsum", "cat", "stack", "where", "einsum", "outer", "dot",
     "softmax", "log_softmax", "sigmoid", "tanh", "zeros_like", "ones_like", "cdist", "linear", "addmm"}
)  # fmt: skip
_BUILTINS = frozenset({"len", "float", "int", "bool", "str", "print", "isinstance", "repr"})
# Functions that fill what they are given.
_FILLING = ("all_reduce", "reduce", "broadcast", "recv", "irecv", "scatter", "all_gather_into_tensor", "reduce_scatter")
_WORST: tuple[Answer, ...] = ("edited", "unknown", "given")
_MAX_DEPTH = 4


def use_of(project: Project, links: Iterable[Link], name: str, depth: int = 0) -> Answer:
    """What statements do with the tensor of a name, and of all names that they give it; "given" is returned."""
    links = list(links)
    if depth > _MAX_DEPTH or links and mentions(links[0].scope, name):
        return "unknown"
    return _worst(_use(project, links, link, expr, depth) for link in links for expr, _ in uses(link, name))


def _worst(answers: Iterable[Answer]) -> Answer:
    found = set(answers)
    return next((answer for answer in _WORST if answer in found), "read")


def use_of_expression(project: Project, link: Link, expr: forms.Expr) -> Answer:
    """What a statement does with the tensor that an expression in it makes."""
    return _use(project, [link], link, expr, 0)


def _use(project: Project, links: list[Link], link: Link, expr: forms.Expr, depth: int) -> Answer:
    """What becomes of an expression that is the tensor, or a part of it."""
    around = _around(link, expr)
    if around is None:
        return _statement(project, links, link, expr, depth)
    if isinstance(around, (forms.Binary, forms.Compare, forms.Unary, forms.FString)):
        return "read"
    if isinstance(around, forms.IfExp) and around.test is expr:
        return "read"
    if isinstance(around, (forms.IfExp, forms.Bool, forms.Sequence)):
        return _use(project, links, link, around, depth)
    if isinstance(around, forms.Sub):
        return _use(project, links, link, around, depth) if around.value is expr else "read"
    if isinstance(around, forms.Attr):
        return "read" if around.name in _FACTS else _use(project, links, link, around, depth)
    if isinstance(around, forms.Call):
        return _called(project, links, link, around, expr, depth)
    return "edited" if isinstance(around, forms.Dict) else "unknown"  # who takes it from there may edit it


def _around(link: Link, expr: forms.Expr) -> forms.Expr | None:
    """The expression right around another; None where that is the statement."""
    todo = list(expressions(link.stmt))
    while todo:
        node = todo.pop()
        for child in children(node):
            if child is expr:
                return node
            todo.append(child)
    return None


def _statement(project: Project, links: list[Link], link: Link, expr: forms.Expr, depth: int) -> Answer:
    stmt = link.stmt
    if isinstance(stmt, forms.AugAssign):
        return "read" if stmt.value is expr else "edited"
    if isinstance(stmt, (forms.Do, forms.If, forms.While, forms.Assert)):
        return "read"
    if isinstance(stmt, forms.Assign) and expr in stmt.targets:
        return "read" if isinstance(expr, forms.Name) else "edited"
    if isinstance(stmt, forms.Assign) and stmt.value is expr:
        return _worst(
            use_of(project, links, target.id, depth + 1) if isinstance(target, forms.Name) else "unknown"
            for target in stmt.targets
        )
    return "given" if isinstance(stmt, forms.Return) else "unknown"


def _called(project: Project, links: list[Link], link: Link, call: forms.Call, expr: forms.Expr, depth: int) -> Answer:
    name = last_name(call.func)
    if call.func is expr:  # a method of the tensor
        if name.endswith("_") and not name.endswith("__"):
            return "edited"
        return "read" if name in _FRESH else _use(project, links, link, call, depth)
    if any(arg.name in ("out", "inplace") for arg in call.args) or name in _FILLING:
        return "edited"
    site = next((site for site in link.scope.module.calls_in(link) if site.expr is call), None)
    values = [] if site is None else list(project.evaluator.values(call.func, project.point(site)))
    if values and all(isinstance(value, Func) for value in values):
        answer = _worst(_within(project, value, call, expr, depth) for value in values if isinstance(value, Func))
        return _use(project, links, link, call, depth) if answer == "given" else answer
    if values and all(isinstance(value, External) and _only_reads(value.path) for value in values):
        return "read"
    if isinstance(call.func, forms.Name) and name in _BUILTINS and name not in link.scope.module.scope.names:
        return "read"
    return "unknown"


def _only_reads(path: str) -> bool:
    """Whether a function of torch reads its tensors and makes others: losses, and what it computes."""
    last = path.rpartition(".")[2]
    loss = last.endswith(("_loss", "Loss")) or last in ("cross_entropy", "binary_cross_entropy_with_logits", "kl_div")
    return path.startswith("torch.") and (last in _FRESH or loss or last == "binary_cross_entropy")


def _within(project: Project, function: Func, call: forms.Call, expr: forms.Expr, depth: int) -> Answer:
    """What a function of the project does with an argument; "given" where it may give it back."""
    scope = function.scope
    name = parameter_of(function, call, expr)
    if name is None or scope.decorators() or scope.yields:
        return "unknown"
    if any(lies_within(inner, scope) for inner in scope.module.functions if inner is not scope):
        return "unknown"
    return use_of(project, links_of(scope), name, depth + 1)


def parameter_of(function: Func, call: forms.Call, given: forms.Expr) -> str | None:
    """The parameter of a function that gets an argument of a call."""
    params = function.scope.function.params
    arg = next((arg for arg in call.args if arg.value is given), None)
    if arg is None or any(other.star for other in call.args):
        return None
    if arg.name is not None:
        return next((param.name for param in params if param.name == arg.name and param.kind[0] != "*"), None)
    plain = [param for param in params if param.kind in ("positional", "normal")]
    index = [other for other in call.args if other.name is None].index(arg) + (function.self_ is not None)
    return plain[index].name if index < len(plain) else None


def is_mentioned_elsewhere(project: Project, attribute: str, links: Iterable[Link]) -> bool:
    """Whether anything but ``__init__`` and these statements mentions an attribute."""
    own = set(links)
    return any(
        isinstance(part, forms.Attr) and part.name == attribute
        for module in project.loaded()
        for link in module.links.values()
        if link not in own and link.scope.name != "__init__"
        for root in expressions(link.stmt)
        for part in descend(root)
    )
