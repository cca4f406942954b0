"""The fix for scripts that start workers when they are imported: a main guard around what runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from dlcheck.checks import moving
from dlcheck.checks.report import make_fix
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Edit, Fix
from dlcheck.model.flow import links_in, links_of
from dlcheck.model.program import is_main_test
from dlcheck.model.scopes import Link, Module, descend, dotted, expressions, last_name

# What a process has to do by itself, a worker as well.
_FOR_EACH_PROCESS = ("environ", "path.append", "path.insert", "setNumThreads", "set_sharing_strategy", "filterwarnings",
                     "simplefilter", "set_num_threads", "basicConfig")  # fmt: skip


def guarded(module: Module, run: Link) -> Fix | Refused:
    """The end of a script, from what prepares its run, under a main guard."""
    while run.parent is not None:
        run = run.parent
    body = module.scope.body
    tail = _Tail(module, body[run.index :])
    if any(isinstance(link.stmt, (forms.Function, forms.Class)) for link in tail.links):
        return Refused("functions or classes are defined behind it")
    if any(isinstance(link.stmt, forms.If) and is_main_test(link.stmt.test) for link in body):
        return Refused("the script has a main guard for other statements")
    while tail.links[0].index and _may_move(module, body[tail.links[0].index - 1]):
        tail = _Tail(module, body[tail.links[0].index - 1 :])
    if tail.fits_function("main"):
        return make_fix(
            "unsafe", "Put the run into `main()`, under a main guard", moving.wrap_tail(module, tail.links[0], "main")
        )
    start = moving.lines_of(module.source, module.facts, tail.links[0])
    if isinstance(start, Refused):
        return start
    text = module.source.text
    moved = moving.reindented(f"{text[start.start :].rstrip()}\n", "", moving.unit(module))
    if isinstance(moved, Refused):
        return moved
    whole = Edit(module.source.place(start.start, len(text)), f'if __name__ == "__main__":\n{moved}')
    return make_fix("unsafe", "Put the run under a main guard", [whole])


class _Tail:
    """The last statements of a script."""

    def __init__(self, module: Module, links: list[Link]) -> None:
        self.module = module
        self.links = links

    @cached_property
    def _all(self) -> list[Link]:
        return [inner for link in self.links for inner in (link, *links_in(link))]

    def fits_function(self, name: str) -> bool:
        """Whether the names that the statements bind may be those of a function alone."""
        before = {
            other
            for link in self.module.scope.body[: self.links[0].index]
            for other in bound_by([link, *links_in(link)])
        }
        names = bound_by(self._all)
        if names & (before | used_in_definitions(self.module)) or name in self.module.scope.names:
            return False
        exprs = (part for link in self._all for root in expressions(link.stmt) for part in descend(root))
        reads = {last_name(part.func) for part in exprs if isinstance(part, forms.Call)}
        return not reads & {"globals", "locals", "vars", "eval", "exec"} and not any(
            isinstance(link.stmt, (forms.Scope, forms.Delete)) for link in self._all
        )


def bound_by(links: Iterable[Link]) -> set[str]:
    """The plain names that statements bind; an object that they change stays what it is."""
    return {name for link in links for name in _bound(link.stmt)}


def _bound(stmt: forms.Stmt) -> Iterator[str]:
    if isinstance(stmt, (forms.Assign, forms.Delete)):
        yield from (name for target in stmt.targets for name in _plain(target))
    elif isinstance(stmt, (forms.AugAssign, forms.Declare, forms.For)):
        yield from _plain(stmt.target)
    elif isinstance(stmt, forms.With):
        yield from (name for item in stmt.items if item.target is not None for name in _plain(item.target))
    elif isinstance(stmt, forms.Try):
        yield from (handler.name for handler in stmt.handlers if handler.name)
    elif isinstance(stmt, forms.Match):
        yield from (name for case in stmt.cases for name in case.names)
    elif isinstance(stmt, (forms.Import, forms.ImportFrom)):
        yield from (alias.bound for alias in stmt.aliases)
    elif isinstance(stmt, (forms.Function, forms.Class)):
        yield stmt.name
    for part in (part for root in expressions(stmt) for part in descend(root)):
        if isinstance(part, forms.Walrus):
            yield from _plain(part.target)


def _plain(target: forms.Expr) -> Iterator[str]:
    if isinstance(target, forms.Name):
        yield target.id
    elif isinstance(target, forms.Sequence):
        yield from (name for item in target.items for name in _plain(item))
    elif isinstance(target, forms.Star):
        yield from _plain(target.value)


def used_in_definitions(module: Module) -> set[str]:
    """The names of a module that its functions and classes mention."""
    names: set[str] = set()
    for scope in (*module.functions, *module.classes):
        own = (scope.names - scope.not_local) | {param.name for param in scope.function.params}
        exprs = (part for link in links_of(scope) for root in expressions(link.stmt) for part in descend(root))
        names |= scope.not_local | {part.id for part in exprs if isinstance(part, forms.Name) and part.id not in own}
    return names


def _may_move(module: Module, link: Link) -> bool:
    """Whether only the main process needs a statement in front of the run."""
    stmt = link.stmt
    whole = (link, *links_in(link))
    if any(isinstance(one.stmt, (forms.Import, forms.ImportFrom, forms.Function, forms.Class)) for one in whole):
        return False
    if isinstance(stmt, forms.Do) and isinstance(stmt.value, forms.Const):
        return False
    names = bound_by(whole)
    if any(name.isupper() for name in names) or names & used_in_definitions(module):
        return False
    texts = [dotted(part) or "" for one in whole for root in expressions(one.stmt) for part in descend(root)]
    return not any(text.endswith(_FOR_EACH_PROCESS) for text in texts)
