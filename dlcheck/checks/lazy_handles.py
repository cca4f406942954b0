"""The fix for a handle that workers inherit: each process opens it for itself, when it first needs it.

``self.file = open(path)`` in ``__init__`` becomes a property ``file``: what it takes to open the file is kept
instead, and the handle belongs to the process that asks.  Nothing else has to change, whoever uses ``self.file``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dlcheck.checks import mending
from dlcheck.checks.report import make_fix
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Edit, Fix
from dlcheck.model.data.keeping import Handle
from dlcheck.model.datasets import DatasetClass
from dlcheck.model.flow import links_of
from dlcheck.model.scopes import Link, Scope, Store, children, descend, dotted, expressions, last_name
from dlcheck.model.workers import reads_own

# What is read from these depends on where the last one who read has left them.
_POSITIONAL = {
    "builtins.open": "seek", "io.open": "seek", "gzip.open": "seek", "bz2.open": "seek", "lzma.open": "seek",
    "cv2.VideoCapture": "set",
}  # fmt: skip
_MODES = re.compile(r"[rbtUw|:*gzx2+a]{1,5}")
# Calls that only look at what they are given.
_LOOKING = frozenset(
    {"len", "list", "sorted", "tuple", "set", "dict", "next", "print", "enumerate", "int", "str", "range", "iter"}
)
# Methods with which attributes are no longer what they seem.
_SPECIAL = frozenset({"__setattr__", "__getattr__", "__getattribute__", "__copy__", "__deepcopy__"})
# Calls that make a path, and are made once.
_PATHS = frozenset({"join", "Path", "str", "format", "joinpath", "with_suffix", "replace", "abspath", "expanduser"})


def opened_in_each_process(dataset: DatasetClass, handle: Handle) -> Fix | Refused:
    """The fix of all handles that the constructor of one class opens: they share its ``__getstate__``."""
    init = handle.link.scope
    owner = init.owner
    if owner is None or init.name != "__init__":
        return Refused("it is not opened in `__init__` itself")
    found = [other for other in dataset.handles if other.link.scope is init]
    names = dict.fromkeys(name for other in found for name in sorted((other.attribute, *other.parts)))
    plan = _Plan(dataset, owner, init, tuple(names), found)
    reason = plan.obstacle()
    if reason:
        return Refused(reason)
    return make_fix("unsafe", "Open it on first use, in each process", [*plan.edits()])


class _Kept(NamedTuple):
    """What ``__init__`` keeps in the place of a handle: attribute and value, or nothing where it has it already."""

    name: str
    value: str


@dataclass
class _Plan:
    dataset: DatasetClass
    owner: Scope
    init: Scope
    names: tuple[str, ...]
    handles: list[Handle]
    stores: dict[str, Store] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    kept: dict[str, str] = field(default_factory=dict)  # the attribute by what it keeps

    def __post_init__(self) -> None:
        self.module = self.owner.module
        self.own = self.init.function.params[0].name if self.init.function.params else ""
        self.opening = {handle.at for handle in self.handles}

    # -- what stands in the way

    def obstacle(self) -> str:
        """Why it cannot be done, if anything stands in the way."""
        if not self.own or not isinstance(self.owner.node, forms.Class):
            return "the class is built in an unusual way"
        if "__slots__" in self.owner.names:
            return "the class has `__slots__`"
        for name in self.names:
            reason = self._store_of(name) or self._assigned_elsewhere(name)
            if reason:
                return reason
        return next(filter(None, (self._misplaced(), self._positional(), self._changed_in_init(), self._deleted())), "")

    def _store_of(self, name: str) -> str:
        stores = [store for store in self.module.stores if self._is_own(store) and store.target.name == name]
        if len(stores) != 1 or stores[0].link.scope is not self.init:
            return f"`self.{name}` is assigned in several places"
        store = stores[0]
        single = isinstance(store.link.stmt, forms.Declare) or (
            isinstance(store.link.stmt, forms.Assign) and len(store.link.stmt.targets) == 1
        )
        if store.value is None or not single:
            return f"`self.{name}` is assigned together with others"
        self.stores[name] = store
        return ""

    def _is_own(self, store: Store) -> bool:
        method = store.link.scope
        params = method.function.params
        return method.owner is self.owner and bool(params) and dotted(store.target.value) == params[0].name

    def _assigned_elsewhere(self, name: str) -> str:
        project = self.dataset.project
        family = {self.owner, *project.subclasses(self.owner), *project.lineage(self.owner)}
        if any(name in cls.names for cls in family):
            return f"`{name}` is a name of the class itself, too"
        for module in project.loaded():
            for store in module.stores:
                cls = store.link.scope.owner
                own = cls is not None and dotted(store.target.value) == store.link.scope.function.params[0].name
                if store.target.name == name and store is not self.stores[name] and (not own or cls in family):
                    return f"`{name}` is assigned elsewhere, too"
        return ""

    def _misplaced(self) -> str:
        links = [store.link for store in self.stores.values()]
        for link in links:
            if any(not isinstance(outer.stmt, forms.If) for outer in link.outer()):
                return "it is opened inside a loop, `with` or `try`"
            if not mending.stands_alone(self.module.source, self.module.facts.span(link.stmt.at)):
                return "several statements stand on one line"
        return ""

    def _positional(self) -> str:
        for handle in self.handles:
            call = next(site.expr for site in self.module.calls if site.expr.at == handle.at)
            assert isinstance(call, forms.Call)
            if _writes(call):
                return "it may be written to"
            if any(arg.name in ("fileobj", "driver") for arg in call.args):
                return "it reads from another open file"
            placed = "seek" if last_name(call.func) == "open" and "pathlib" in handle.path else ""
            placed = placed or _POSITIONAL.get(handle.path, "")
            if placed and not self._is_placed(handle.attribute, placed):
                return "what is read depends on where the file stands"
        return ""

    def _is_placed(self, name: str, method: str) -> bool:
        """Whether worker code says where it reads, before it does."""
        return any(
            isinstance(call.call.func, forms.Attr) and call.call.func.name == method
            and last_name(call.call.func.value) == name
            for call in self.dataset.worker_code.calls
        )  # fmt: skip

    def _changed_in_init(self) -> str:
        for link in links_of(self.init):
            stmt = link.stmt
            if isinstance(stmt, forms.Do) and isinstance(stmt.value, forms.Call) and self._is_handle(stmt.value.func):
                return f"`{self.module.line(stmt.at)}` prepares it once"
            if isinstance(stmt, (forms.Assign, forms.AugAssign)):
                targets = stmt.targets if isinstance(stmt, forms.Assign) else (stmt.target,)
                for target in targets:
                    if isinstance(target, (forms.Attr, forms.Sub)) and self._is_handle(target.value):
                        return f"`{self.module.line(stmt.at)}` prepares it once"
            for expr in (inner for root in expressions(stmt) for inner in descend(root)):
                if not isinstance(expr, forms.Call) or last_name(expr.func) in _LOOKING:
                    continue
                if any(self._is_handle(arg.value, exactly=True) for arg in expr.args):
                    return f"`{self.module.line(expr.func.at)}(...)` is given the handle"
        return ""

    def _is_handle(self, expr: forms.Expr, exactly: bool = False) -> bool:
        """Whether an expression is a handle, or is got from one."""
        while not exactly and isinstance(expr, (forms.Attr, forms.Sub, forms.Call)):
            if self._is_handle(expr, exactly=True):
                return True
            expr = expr.func if isinstance(expr, forms.Call) else expr.value
        name = dotted(expr)
        return name is not None and (name in {f"{self.own}.{one}" for one in self.names} or name in self.locals)

    def _deleted(self) -> str:
        for method in self.owner.functions.values():
            if (
                method.name in _SPECIAL
                or method.name == "__del__"
                and any(reads_own(method, one) for one in self.names)
            ):
                return f"`{method.name}` has to do with it"
            for link in links_of(method):
                if isinstance(link.stmt, forms.Delete) and any(last_name(t) in self.names for t in link.stmt.targets):
                    return "it is deleted somewhere"
        return ""

    # -- local names

    @property
    def locals(self) -> dict[str, Link]:
        """The local names of ``__init__`` that hold a handle, and where they get it."""
        found: dict[str, Link] = {}
        for link in links_of(self.init):
            stmt = link.stmt
            if not isinstance(stmt, forms.Assign) or len(stmt.targets) != 1 or not isinstance(stmt.value, forms.Call):
                continue
            if isinstance(stmt.targets[0], forms.Name) and stmt.value.at in self.opening:
                found[stmt.targets[0].id] = link
        return found

    def _bindings(self, name: str) -> int:
        params = sum(param.name == name for param in self.init.function.params)
        return params + sum(name in link.changes for link in links_of(self.init) if not link.blocks)

    # -- edits

    def edits(self) -> Iterator[Edit | Refused]:
        source, facts = self.module.source, self.module.facts
        self.kept = {}
        self.taken = {expr.name for expr in self._attributes()} | {name for cls in self._family() for name in cls.names}
        self.taken |= {store.target.name for module in self.dataset.project.loaded() for store in module.stores
                       if self._may_be_ours(store)}  # fmt: skip
        slots = {name: self._slot(name) for name in self.names if not self._is_cheap(self.stores[name].value)}
        properties, gone = [], set()
        for name in self.names:
            store = self.stores[name]
            assert store.value is not None
            kept: list[_Kept] = []
            text = self._deferred(store.value, name, store.link, kept)
            if isinstance(text, Refused):
                yield text
                return
            gone |= {local for local in self.locals if self._mentions_local(store.value, local)}
            lines = [f"{self.own}.{one.name} = {one.value}" for one in kept]
            if name not in slots:
                properties.append(_forwarding(name, self.own, text))
            else:
                slot = slots[name]
                properties.append(_property(name, slot, self.own, text))
                lines.append(f"{self.own}.{slot} = {self.own}.{slot}_pid = None")
            yield mending.replace_statement(source, facts, store.link, lines)
        for local in gone:
            if not self._is_used_otherwise(local):
                yield mending.remove_statement(source, facts, self.locals[local])
        if self._is_used_by_main():
            properties.append(_getstate(self.own, slots.values()))
        yield mending.add_methods(source, facts, self.init, properties)
        yield from mending.import_edits(self.module, "os")

    def _family(self) -> list[Scope]:
        project = self.dataset.project
        return [self.owner, *project.subclasses(self.owner), *project.lineage(self.owner)]

    def _attributes(self) -> Iterator[forms.Attr]:
        for cls in self._family():
            for method in cls.functions.values():
                for link in links_of(method):
                    for root in expressions(link.stmt):
                        yield from (expr for expr in descend(root) if isinstance(expr, forms.Attr))

    def _may_be_ours(self, store: Store) -> bool:
        """Whether an assignment is not one of another class to its own attributes."""
        owner, params = store.link.scope.owner, store.link.scope.function.params
        own = owner is not None and bool(params) and dotted(store.target.value) == params[0].name
        return not own or owner in self._family()

    def _slot(self, name: str) -> str:
        """The attribute that a process keeps its handle in: none that the class has, and none that Python renames."""
        bare = name.strip("_")
        first = () if name.startswith("_") else (f"_{name}",)
        slot = self._unlike((*first, f"_{bare}_handle", f"_own_{bare}"), "_pid")
        self.taken |= {slot, f"{slot}_pid"}
        return slot

    def _unlike(self, names: Sequence[str], also: str = "") -> str:
        """The first of some names that no attribute has."""
        numbered = (f"{names[-1]}_{number}" for number in itertools.count(2))
        return next(name for name in itertools.chain(names, numbered) if not {name, f"{name}{also}"} & self.taken)

    def _is_cheap(self, value: forms.Expr | None) -> bool:
        """Whether a part is looked up in a handle that is kept itself: ``self.file["images"]``."""
        own = {f"{self.own}.{name}" for name in self.names}
        return value is not None and any(dotted(expr) in own for expr in descend(value))

    def _mentions_local(self, value: forms.Expr, local: str) -> bool:
        return any(isinstance(expr, forms.Name) and expr.id == local for expr in descend(value))

    def _is_used_otherwise(self, local: str) -> bool:
        deferred = {store.link for store in self.stores.values()}
        return any(
            self._mentions_local(root, local)
            for link in links_of(self.init)
            if link not in deferred and link is not self.locals[local]
            for root in expressions(link.stmt)
        )

    def _is_used_by_main(self) -> bool:
        """Whether the main process may have opened it before a worker gets the dataset with ``pickle``."""
        workers = {frame.scope for frame, _ in self.dataset.worker_code.frames}
        deferred = {store.link for store in self.stores.values()}
        for cls in self._family():
            for method in cls.functions.values():
                if method is self.init:
                    used = any(
                        dotted(expr) in {f"{self.own}.{name}" for name in self.names}
                        for link in links_of(method) if link not in deferred
                        for root in expressions(link.stmt) for expr in descend(root)
                    )  # fmt: skip
                else:
                    used = any(reads_own(method, name) for name in self.names)
                if used and (method in (self.init,) or method.name == "__len__" or method not in workers):
                    return True
        return False

    def _deferred(self, value: forms.Expr, name: str, link: Link, kept: list[_Kept]) -> str | Refused:
        """The text of a value as a method of the class may say it, later; what it needs is added to ``kept``."""
        facts, text = self.module.facts, self.module.source.text
        pieces: list[tuple[int, int, str]] = []
        for expr, whole in self._local_parts(value):
            start, end = facts.span(expr.at)
            local = self.locals.get(expr.id) if isinstance(expr, forms.Name) else None
            if local is not None:
                assert isinstance(local.stmt, forms.Assign)
                if self._bindings(dotted(expr) or "") != 1:
                    return Refused(f"`{text[start:end]}` is bound several times")
                inner = self._deferred(local.stmt.value, name, link, kept)
                if isinstance(inner, Refused):
                    return inner
                pieces.append((start, end, inner))
            else:
                attribute = self._keep(expr, whole, name, link, kept)
                if isinstance(attribute, Refused):
                    return attribute
                pieces.append((start, end, f"{self.own}.{attribute}"))
        start, end = facts.span(value.at)
        out = mending.substituted(text, start, end, pieces)
        if "#" in out or '"""' in out or "'''" in out:
            return Refused("a comment or a long string stands in the way")
        return _at_depth(out, mending.indentation(text, start))

    def _local_parts(self, value: forms.Expr) -> Iterator[tuple[forms.Expr, bool]]:
        """What must be kept: whole paths, else local names."""
        if self._is_path(value) and self._has_locals(value):
            yield value, not isinstance(value, forms.Name)
        elif isinstance(value, forms.Name):
            if self._is_local(value):
                yield value, False
        else:
            for child in children(value):
                yield from self._local_parts(child)

    def _is_path(self, value: forms.Expr) -> bool:
        if isinstance(value, forms.Call):
            return last_name(value.func) in _PATHS
        return isinstance(value, (forms.FString, forms.Binary))

    def _has_locals(self, value: forms.Expr) -> bool:
        return any(isinstance(expr, forms.Name) and self._is_local(expr) for expr in descend(value))

    def _is_local(self, name: forms.Name) -> bool:
        return name.id != self.own and name.id in self.init.names

    def _keep(self, expr: forms.Expr, whole: bool, name: str, link: Link, kept: list[_Kept]) -> str | Refused:
        text = mending.one_line(self.module.source.text[slice(*self.module.facts.span(expr.at))])
        if text is None:
            return Refused("a comment or a long string stands in the way")
        once = all(self._bindings(part.id) == 1 for part in descend(expr) if isinstance(part, forms.Name))
        key = text if once else f"{text} at {link.stmt.at}"
        if key in self.kept:
            return self.kept[key]
        there = None if whole else self._kept_already(text, link)
        if there is not None:
            return there
        bare = name.strip("_")
        private = f"_{bare}_path" if whole or text == name else f"_{bare}_{text.strip('_')}"
        public = f"{bare}_path" if whole else text
        first = () if not whole and set(self.dataset.bases) - mending.PLAIN_BASES else (public,)
        wanted = self._unlike((*first, private))
        self.taken.add(wanted)
        kept.append(_Kept(wanted, text))
        self.kept[key] = wanted
        return wanted

    def _kept_already(self, name: str, link: Link) -> str | None:
        """The attribute that keeps a local name's value all the time."""
        start = self.module.facts.span(link.stmt.at)[0]
        for store in self.module.stores:
            here = store.link.scope is self.init and store.link.parent is None and self._is_own(store)
            before = self.module.facts.span(store.link.stmt.at)[0] < start
            if here and before and isinstance(store.value, forms.Name) and store.value.id == name:
                again = [other for other in self.module.stores if other.target.name == store.target.name]
                only = [other for other in again if other.link.scope.owner in (None, *self._family())] == [store]
                if only and self._bindings(name) == 1:
                    return store.target.name
        return None


def _writes(call: forms.Call) -> bool:
    """Whether a file is opened to be written, or is one in memory."""
    texts = [arg.value.value for arg in call.args if isinstance(arg.value, forms.Const)]
    modes = [text for text in texts if isinstance(text, str) and _MODES.fullmatch(text)]
    return ":memory:" in texts or any(set(mode.partition(":")[0]) & set("wax+") for mode in modes)


def _property(name: str, slot: str, own: str, opening: str) -> Iterable[str]:
    return (
        "@property",
        f"def {name}({own}):",
        f"    if {own}.{slot}_pid != os.getpid():",
        f"        {own}.{slot} = None  # let go of what another process has opened",
        f"        {own}.{slot} = {opening}",
        f"        {own}.{slot}_pid = os.getpid()",
        f"    return {own}.{slot}",
    )


def _at_depth(value: str, indent: str) -> str:
    """A value of several lines, with these two levels deep."""
    first, *others = value.split("\n")
    return "\n".join((first, *("        " + line.rstrip("\r").removeprefix(indent) for line in others)))


def _forwarding(name: str, own: str, value: str) -> Iterable[str]:
    return "@property", f"def {name}({own}):", f"    return {value}"


def _getstate(own: str, slots: Iterable[str]) -> Iterable[str]:
    dropped = ", ".join(f'"{slot}": None, "{slot}_pid": None' for slot in slots)
    return f"def __getstate__({own}):", f"    return {{**{own}.__dict__, {dropped}}}"
