"""A module's forms, linked: every statement knows its block, its scope and the names it may change."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from dlcheck.facts import forms
from dlcheck.facts.forms import Expr, Stmt

if TYPE_CHECKING:
    from dlcheck.facts import ModuleFacts
    from dlcheck.source import Source

Item = TypeVar("Item")
Key = TypeVar("Key")

# Methods that change the object they are called on; the name then has another value.
MUTATORS = frozenset(
    {"update", "setdefault", "pop", "append", "extend", "insert", "add", "clear", "remove", "add_argument"}
)


@dataclass(eq=False, slots=True)
class Link:
    """A statement in its place.

    ``changes`` are the names that it, or a statement inside it, may bind or change: plain names,
    and dotted ones for ``self.x = ...`` and ``args.x = ...``.  ``mutated`` are those that expressions of its
    own change in place.
    """

    stmt: Stmt
    scope: Scope
    block: list[Link]
    index: int
    parent: Link | None
    slot: str  # which block of the parent: body, orelse, final, handler 0, case 0, ...
    blocks: dict[str, list[Link]] = field(default_factory=dict)
    changes: frozenset[str] = frozenset()
    mutated: frozenset[str] = frozenset()
    leaves: bool = False  # control never reaches the statement after it

    @property
    def head(self) -> int:
        """The node of the statement; of a compound one, of its first line."""
        return getattr(self.stmt, "head", self.stmt.at)

    def outer(self) -> Iterator[Link]:
        """The compound statements around it, innermost first, within its scope."""
        link = self.parent
        while link is not None:
            yield link
            link = link.parent


_NO_FUNCTION = forms.Function("", (), (), (), False, False, -1, -1, -1)


@dataclass(eq=False, slots=True)
class Scope:
    """A module, class or function: its body, the names that are its own, and the scope around it."""

    kind: str  # module | class | function
    name: str
    module: Module
    parent: Scope | None
    node: forms.Function | forms.Class | None
    link: Link | None  # the statement that defines it
    body: list[Link] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    not_local: set[str] = field(default_factory=set)
    returns: list[Link] = field(default_factory=list)
    yields: list[Site] = field(default_factory=list)
    functions: dict[str, Scope] = field(default_factory=dict)
    classes: dict[str, Scope] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.qualified}>"

    @property
    def qualified(self) -> str:
        """Dotted name within the module, such as ``Clips.__getitem__``."""
        if self.parent is None or self.parent.kind == "module":
            return self.name
        return f"{self.parent.qualified}.{self.name}"

    @property
    def function(self) -> forms.Function:
        """What it was defined by.  A module or class, where a lambda may stand, runs as a function of no parameters."""
        return self.node if isinstance(self.node, forms.Function) else _NO_FUNCTION

    @property
    def owner(self) -> Scope | None:
        """The class that a method belongs to."""
        return self.parent if self.kind == "function" and self.parent and self.parent.kind == "class" else None

    def decorators(self) -> tuple[Expr, ...]:
        return self.node.decorators if self.node else ()

    def has_decorator(self, *names: str) -> bool:
        """Whether a decorator's last name is one of ``names``."""
        return any(last_name(_called(decorator)) in names for decorator in self.decorators())


@dataclass(eq=False, slots=True)
class Inner:
    """A comprehension or lambda: a small scope inside a statement."""

    form: forms.Comp | forms.Lambda
    parent: Inner | None


class Site(NamedTuple):
    """An expression of interest (a call, a yield, ...) and where it stands."""

    expr: Expr
    link: Link
    inner: Inner | None

    @property
    def scope(self) -> Scope:
        return self.link.scope

    @property
    def module(self) -> Module:
        return self.link.scope.module


class Store(NamedTuple):
    """``target.name = value``: an attribute assignment."""

    target: forms.Attr
    value: Expr | None  # None where it is bound otherwise: unpacked, iterated
    link: Link


@dataclass(eq=False)
class Module:
    """A linked module.  ``name`` is its dotted name within the project."""

    name: str
    source: Source
    facts: ModuleFacts
    named: bool = True  # analysis begins with it
    is_package: bool = False
    calls: list[Site] = field(default_factory=list)
    loops: list[Link] = field(default_factory=list)
    comps: list[Site] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    classes: list[Scope] = field(default_factory=list)
    functions: list[Scope] = field(default_factory=list)
    stars: list[forms.ImportFrom] = field(default_factory=list)
    imports: list[tuple[Stmt, Link]] = field(default_factory=list)
    inners: dict[int, Inner] = field(default_factory=dict)
    links: dict[int, Link] = field(default_factory=dict)
    shortcuts: dict[str, set[str]] = field(default_factory=dict)  # method -> plain names it is assigned to
    arguments: dict[int, int] = field(default_factory=dict)  # node of a value -> its argument or dict entry
    walruses: set[str] = field(default_factory=set)  # names that some ``name := value`` binds
    scope: Scope = field(init=False)
    _answers: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.scope = Scope("module", "", self, None, None, None)
        _Linker(self).run()

    def __repr__(self) -> str:
        return f"<module {self.name}>"

    def once(self, key: Hashable, compute: Callable[[Module], Item]) -> Item:
        """What follows from the module alone, computed once."""
        if key not in self._answers:
            self._answers[key] = compute(self)
        return cast("Item", self._answers[key])

    @cached_property
    def libraries(self) -> frozenset[str]:
        """Top-level names of what it imports."""
        names: set[str] = set()
        for stmt, _ in self.imports:
            if isinstance(stmt, forms.Import):
                names.update(alias.name.partition(".")[0] for alias in stmt.aliases)
            elif isinstance(stmt, forms.ImportFrom) and not stmt.level:
                names.add(stmt.module.partition(".")[0])
        return frozenset(names)

    @cached_property
    def added_folders(self) -> list[str]:
        """The folders that it puts on ``sys.path`` by their literal names."""
        calls = [site.expr for site in self.calls if isinstance(site.expr, forms.Call)]
        given = [
            call.args[-1].value
            for call in calls
            if dotted(call.func) in ("sys.path.append", "sys.path.insert") and call.args
        ]
        folder = os.path.dirname(self.source.file)
        return [
            os.path.normpath(os.path.join(folder, value.value))
            for value in given
            if isinstance(value, forms.Const) and isinstance(value.value, str)
        ]

    @cached_property
    def _calls_by_link(self) -> dict[Link, list[Site]]:
        found: dict[Link, list[Site]] = {}
        for site in self.calls:
            for link in (site.link, *site.link.outer()):
                found.setdefault(link, []).append(site)
        return found

    def calls_in(self, link: Link) -> list[Site]:
        """The calls in a statement and in its blocks."""
        return self._calls_by_link.get(link, [])

    @cached_property
    def calls_by_scope(self) -> dict[Scope, list[Site]]:
        """The calls that stand in each function's own statements."""
        return _grouped(self.calls, lambda site: site.link.scope)

    @cached_property
    def calls_by_name(self) -> dict[str, list[Site]]:
        """The calls by the last name of what they call."""
        return _grouped(self.calls, lambda site: last_name(cast("forms.Call", site.expr).func))

    def calls_to(self, *names: str) -> list[Site]:
        """The calls of whatever has one of these last names, in the order of ``calls``."""
        found = [site for name in names for site in self.calls_by_name.get(name, ())]
        return found if len(names) == 1 else sorted(found, key=lambda site: self._call_numbers[site.expr.at])

    @cached_property
    def _call_numbers(self) -> dict[int, int]:
        return {site.expr.at: number for number, site in enumerate(self.calls)}

    @cached_property
    def stores_by_scope(self) -> dict[Scope, list[Store]]:
        """The attribute assignments that stand in each function's own statements."""
        return _grouped(self.stores, lambda store: store.link.scope)

    @cached_property
    def stores_by_owner(self) -> dict[Scope | None, list[Store]]:
        """The attribute assignments that stand in the methods of each class; of None in no class's."""
        return _grouped(self.stores, lambda store: store.link.scope.owner)

    @cached_property
    def _links_in_order(self) -> list[tuple[int, Link]]:
        starts = ((self.facts.span(link.stmt.at)[0], number, link) for number, link in enumerate(self.links.values()))
        return [(start, link) for start, _, link in sorted(starts)]

    def link_at(self, at: int) -> Link:
        """The innermost statement that holds a node."""
        start, end = self.facts.span(at)
        number = bisect_right(self._links_in_order, start, key=lambda one: one[0])
        link = self._links_in_order[number - 1][1] if number else None
        while link is not None and self.facts.span(link.stmt.at)[1] < end:
            link = link.parent or link.scope.link
        assert link is not None, "every expression stands in a statement"
        return link

    def line(self, at: int) -> str:
        """The source text of a node, on one line."""
        start, end = self.facts.span(at)
        lines = [line.strip() for line in self.source.text[start:end].splitlines()]
        return lines[0] if len(lines) == 1 else " ".join(filter(None, lines))


def _grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def loops_for_ever(scope: Scope) -> bool:
    """Whether a function has a ``while True``."""
    loops = (link.stmt for link in scope.module.loops if link.scope is scope)
    return any(
        isinstance(stmt, forms.While) and isinstance(stmt.test, forms.Const) and bool(stmt.test.value) for stmt in loops
    )


def dotted(expr: Expr | None) -> str | None:
    """``a.b.c`` of a chain of attributes on a name, else None."""
    parts: list[str] = []
    while isinstance(expr, forms.Attr):
        parts.append(expr.name)
        expr = expr.value
    if not isinstance(expr, forms.Name):
        return None
    parts.append(expr.id)
    return ".".join(reversed(parts))


def last_name(expr: Expr | None) -> str:
    """``c`` of ``a.b.c`` and of ``f().c``; "" where there is none."""
    if isinstance(expr, forms.Attr):
        return expr.name
    return expr.id if isinstance(expr, forms.Name) else ""


def _called(expr: Expr) -> Expr:
    return expr.func if isinstance(expr, forms.Call) else expr


def flat_targets(target: Expr) -> Iterator[Expr]:
    """What an assignment to ``target`` binds, one by one: ``a`` and ``b.c`` of ``(a, b.c)``."""
    if isinstance(target, forms.Sequence):
        for item in target.items:
            yield from flat_targets(item)
    else:
        yield target


def target_names(target: Expr | None) -> Iterator[str]:
    """The names, dotted ones included, that an assignment to ``target`` binds or changes."""
    if isinstance(target, forms.Sequence):
        for item in target.items:
            yield from target_names(item)
    elif isinstance(target, forms.Star):
        yield from target_names(target.value)
    elif isinstance(target, forms.Sub):
        name = dotted(target.value)
        if name:
            yield name
    else:
        name = dotted(target)
        if name:
            yield name


def children(expr: Expr) -> Iterable[Expr]:
    """The direct sub-expressions of an expression."""
    find = _CHILDREN.get(expr.__class__)
    return () if find is None else find(expr)


def same_place(left: Expr, right: Expr) -> bool:
    """Whether two expressions are one place: ``total`` and ``total``, ``sums[key]`` and ``sums[key]``."""
    if isinstance(left, forms.Sub) and isinstance(right, forms.Sub):
        keys = (left.index, right.index)
        alike = dotted(keys[0]) is not None and dotted(keys[0]) == dotted(keys[1])
        if isinstance(keys[0], forms.Const) and isinstance(keys[1], forms.Const):
            alike = keys[0].value == keys[1].value
        return alike and same_place(left.value, right.value)
    return dotted(left) is not None and dotted(left) == dotted(right)


def descend(expr: Expr) -> Iterator[Expr]:
    """An expression and all that it contains."""
    todo = [expr]
    while todo:
        node = todo.pop()
        yield node
        find = _CHILDREN.get(node.__class__)
        if find is not None:
            todo.extend(find(node))


def _of_dict(expr: forms.Dict) -> Iterator[Expr]:
    for entry in expr.entries:
        if entry.key is not None:
            yield entry.key
        yield entry.value


def _of_comp(expr: forms.Comp) -> Iterator[Expr]:
    for clause in expr.clauses:
        yield clause.target
        yield clause.iter
        yield from clause.ifs
    if expr.key is not None:
        yield expr.key
    yield expr.value


def _of_lambda(expr: forms.Lambda) -> Iterator[Expr]:
    for param in expr.params:
        if param.default is not None:
            yield param.default
    yield expr.body


def _given(*parts: Expr | None) -> list[Expr]:
    return [part for part in parts if part is not None]


# Of names and constants there are most by far: they have none, and are not here.
_CHILDREN: dict[type, Callable[[Any], Iterable[Expr]]] = {
    forms.Attr: lambda expr: (expr.value,),
    forms.Sub: lambda expr: (expr.value, expr.index),
    forms.Slice: lambda expr: _given(expr.lower, expr.upper, expr.step),
    forms.Call: lambda expr: [expr.func, *[arg.value for arg in expr.args]],
    forms.Sequence: lambda expr: expr.items,
    forms.Dict: _of_dict,
    forms.Star: lambda expr: (expr.value,),
    forms.Binary: lambda expr: (expr.left, expr.right),
    forms.Unary: lambda expr: (expr.value,),
    forms.Bool: lambda expr: (expr.left, expr.right),
    forms.Compare: lambda expr: (expr.left, *expr.rights),
    forms.IfExp: lambda expr: (expr.test, expr.body, expr.orelse),
    forms.Comp: _of_comp,
    forms.Lambda: _of_lambda,
    forms.Walrus: lambda expr: (expr.target, expr.value),
    forms.Await: lambda expr: (expr.value,),
    forms.Yield: lambda expr: _given(expr.value),
    forms.FString: lambda expr: expr.parts,
    forms.Other: lambda expr: expr.parts,
}


def expressions(stmt: Stmt) -> Iterable[Expr]:
    """The expressions that stand directly in a statement, not in its blocks."""
    find = _EXPRESSIONS.get(stmt.__class__)
    return () if find is None else find(stmt)


def _of_with(stmt: forms.With) -> Iterator[Expr]:
    for item in stmt.items:
        yield item.value
        if item.target is not None:
            yield item.target


_EXPRESSIONS: dict[type, Callable[[Any], Iterable[Expr]]] = {
    forms.Assign: lambda stmt: (*stmt.targets, stmt.value),
    forms.Delete: lambda stmt: stmt.targets,
    forms.Declare: lambda stmt: _given(stmt.target, stmt.value),
    forms.AugAssign: lambda stmt: (stmt.target, stmt.value),
    forms.Do: lambda stmt: (stmt.value,),
    forms.Return: lambda stmt: _given(stmt.value),
    forms.Raise: lambda stmt: _given(stmt.value),
    forms.For: lambda stmt: (stmt.target, stmt.iter),
    forms.While: lambda stmt: (stmt.test,),
    forms.If: lambda stmt: (stmt.test,),
    forms.Assert: lambda stmt: (stmt.test,),
    forms.With: _of_with,
    forms.Match: lambda stmt: (stmt.subject,),
    forms.Try: lambda stmt: _given(*[handler.type for handler in stmt.handlers]),
    forms.Function: lambda stmt: [*stmt.decorators, *_given(*[param.default for param in stmt.params])],
    forms.Class: lambda stmt: [*stmt.decorators, *[base.value for base in stmt.bases]],
}


def _blocks(stmt: Stmt) -> Iterator[tuple[str, forms.Block]]:
    if isinstance(stmt, (forms.For, forms.While, forms.If)):
        yield "body", stmt.body
        yield "orelse", stmt.orelse
    elif isinstance(stmt, forms.With):
        yield "body", stmt.body
    elif isinstance(stmt, forms.Try):
        yield "body", stmt.body
        for number, handler in enumerate(stmt.handlers):
            yield f"handler {number}", handler.body
        yield "orelse", stmt.orelse
        yield "final", stmt.final
    elif isinstance(stmt, forms.Match):
        for number, case in enumerate(stmt.cases):
            yield f"case {number}", case.body


class _Linker:
    def __init__(self, module: Module) -> None:
        self.module = module

    def run(self) -> None:
        scope = self.module.scope
        scope.body = self._block(self.module.facts.body, scope, None, "body")
        self.module.calls.sort(key=lambda site: site.expr.at)

    def _block(self, block: forms.Block, scope: Scope, parent: Link | None, slot: str) -> list[Link]:
        links: list[Link] = []
        for stmt in block:
            link = Link(stmt, scope, links, len(links), parent, slot)
            links.append(link)
            self.module.links[stmt.at] = link
            self._statement(link)
        return links

    def _statement(self, link: Link) -> None:
        stmt, scope = link.stmt, link.scope
        changes: set[str] = set()
        mutated: set[str] = set()
        for expr in expressions(stmt):
            self._expression(expr, link, None, changes, mutated)
        self._note(link, changes)
        # What is only changed in place may belong to a scope further out.
        scope.names |= {name for name in changes - _subscripted(stmt) if "." not in name}
        changes |= mutated
        for slot, block in _blocks(stmt):
            links = link.blocks[slot] = self._block(block, scope, link, slot)
            for inner in links:
                changes |= inner.changes
        link.changes, link.mutated = frozenset(changes), frozenset(mutated)
        link.leaves = _leaves(link)

    def _note(self, link: Link, changes: set[str]) -> None:
        """Record what the kind of statement itself says."""
        stmt, scope, module = link.stmt, link.scope, self.module
        if isinstance(stmt, forms.Assign):
            for target in stmt.targets:
                changes.update(target_names(target))
                self._stores(target, stmt.value, link)
                if isinstance(target, forms.Name) and isinstance(stmt.value, forms.Attr):
                    module.shortcuts.setdefault(stmt.value.name, set()).add(target.id)
        elif isinstance(stmt, (forms.Declare, forms.AugAssign)):
            changes.update(target_names(stmt.target))
            self._stores(stmt.target, stmt.value if isinstance(stmt, forms.Declare) else None, link)
        elif isinstance(stmt, forms.Delete):
            for target in stmt.targets:
                changes.update(target_names(target))
        elif isinstance(stmt, forms.For):
            changes.update(target_names(stmt.target))
            self._stores(stmt.target, None, link)
            module.loops.append(link)
        elif isinstance(stmt, forms.While):
            module.loops.append(link)
        elif isinstance(stmt, forms.With):
            for item in stmt.items:
                changes.update(target_names(item.target))
                self._stores(item.target, item.value, link)
        elif isinstance(stmt, forms.Try):
            changes.update(handler.name for handler in stmt.handlers if handler.name)
        elif isinstance(stmt, forms.Match):
            for case in stmt.cases:
                changes.update(case.names)
        elif isinstance(stmt, forms.Return):
            scope.returns.append(link)
        elif isinstance(stmt, forms.Scope):
            scope.not_local.update(stmt.names)
        elif isinstance(stmt, (forms.Import, forms.ImportFrom)):
            changes.update(alias.bound for alias in stmt.aliases)
            module.imports.append((stmt, link))
            if isinstance(stmt, forms.ImportFrom) and not stmt.aliases:
                module.stars.append(stmt)
        elif isinstance(stmt, forms.Function):
            changes.add(stmt.name)
            self._function(stmt, link)
        elif isinstance(stmt, forms.Class):
            changes.add(stmt.name)
            self._class(stmt, link)

    def _stores(self, target: Expr | None, value: Expr | None, link: Link) -> None:
        if isinstance(target, forms.Attr):
            self.module.stores.append(Store(target, value, link))
        elif isinstance(target, forms.Sequence):
            for item in target.items:
                self._stores(item, None, link)

    def _function(self, stmt: forms.Function, link: Link) -> None:
        scope = Scope("function", stmt.name, self.module, link.scope, stmt, link)
        scope.names |= {param.name for param in stmt.params}
        link.scope.functions[stmt.name] = scope
        self.module.functions.append(scope)
        scope.body = self._block(stmt.body, scope, None, "body")

    def _class(self, stmt: forms.Class, link: Link) -> None:
        scope = Scope("class", stmt.name, self.module, link.scope, stmt, link)
        link.scope.classes[stmt.name] = scope
        self.module.classes.append(scope)
        scope.body = self._block(stmt.body, scope, None, "body")

    def _expression(self, root: Expr, link: Link, inner: Inner | None, changes: set[str], mutated: set[str]) -> None:
        module = self.module
        todo: list[tuple[Expr, Inner | None]] = [(root, inner)]
        while todo:
            expr, around = todo.pop()
            kind = expr.__class__
            if kind is forms.Name or kind is forms.Const:
                continue
            if isinstance(expr, forms.Call):
                module.calls.append(Site(expr, link, around))
                module.arguments.update((arg.value.at, arg.at) for arg in expr.args if arg.name)
                func = expr.func
                if isinstance(func, forms.Attr) and func.name in MUTATORS:
                    name = dotted(func.value)
                    if name:
                        mutated.add(name)
            elif isinstance(expr, forms.Dict):
                module.arguments.update((entry.value.at, entry.at) for entry in expr.entries if entry.key)
            elif isinstance(expr, forms.Walrus):
                changes.update(target_names(expr.target))
                module.walruses.update(target_names(expr.target))
            elif isinstance(expr, forms.Yield):
                link.scope.yields.append(Site(expr, link, around))
            elif isinstance(expr, (forms.Comp, forms.Lambda)):
                if isinstance(expr, forms.Comp):
                    module.comps.append(Site(expr, link, around))
                around = module.inners[expr.at] = Inner(expr, around)
            todo.extend((child, around) for child in children(expr))


def _subscripted(stmt: Stmt) -> set[str]:
    """The names of which a statement only sets items: ``name[key] = value``."""
    targets: tuple[Expr, ...] = ()
    if isinstance(stmt, (forms.Assign, forms.Delete)):
        targets = stmt.targets
    elif isinstance(stmt, forms.AugAssign):
        targets = (stmt.target,)
    names = {name for target in targets if isinstance(target, forms.Sub) for name in target_names(target)}
    return names - {name for target in targets if not isinstance(target, forms.Sub) for name in target_names(target)}


def _leaves(link: Link) -> bool:
    stmt = link.stmt
    if isinstance(stmt, (forms.Return, forms.Raise)):
        return True
    if isinstance(stmt, forms.Jump):
        return stmt.kind != "pass"
    if isinstance(stmt, forms.Do):
        call = stmt.value
        return isinstance(call, forms.Call) and dotted(call.func) in ("sys.exit", "exit", "quit", "os._exit")
    if isinstance(stmt, forms.If):
        return bool(stmt.orelse) and _ends(link.blocks["body"]) and _ends(link.blocks["orelse"])
    if isinstance(stmt, forms.With):
        return _ends(link.blocks["body"])
    if isinstance(stmt, forms.Try):
        if _ends(link.blocks["final"]):
            return True
        arms = [links for slot, links in link.blocks.items() if slot.startswith("handler")]
        main = _ends(link.blocks["body"]) or _ends(link.blocks["orelse"])
        return main and all(_ends(arm) for arm in arms)
    return False


def _ends(links: list[Link]) -> bool:
    return any(link.leaves for link in links)
