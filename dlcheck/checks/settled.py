"""Expressions that are the same for every sample, as another method says them: without the local names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dlcheck.checks import class_edits, mending
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.model.flow import links_of
from dlcheck.model.project import Project
from dlcheck.model.scopes import Link, Scope, children, descend, dotted, expressions, target_names

# Calls that give the same for the same, and change nothing.
_STEADY = frozenset(
    {"join", "str", "Path", "PurePath", "format", "joinpath", "with_suffix", "with_name", "abspath", "expanduser",
     "realpath", "normpath", "open", "fspath", "dirname", "resolve", "basename", "replace", "lower", "upper", "strip",
     "endswith", "startswith", "split", "rsplit", "splitext", "isfile", "isdir", "exists", "is_file", "is_dir",
     "match", "search", "fullmatch", "len", "int", "sorted", "any", "all", "list", "tuple", "rstrip", "lstrip",
     "removesuffix", "removeprefix", "partition", "rpartition", "group", "zfill", "listdir", "glob", "iglob", "iterdir",
     "rglob", "read", "readlines", "read_text", "read_bytes"}
)  # fmt: skip

MAX_DEPTH = 6


class Settled:
    """What a method says of an object that keeps its attributes, as another method of the class may say it."""

    def __init__(self, project: Project, owner: Scope, method: Scope, steady: Iterable[str] = ()) -> None:
        """``steady`` are further calls, by their last names, that give the same for the same."""
        self.project, self.owner, self.method = project, owner, method
        self.module = method.module
        self.own = class_edits.own_name(method)
        self.classes = class_edits.family(project, owner)
        self.steady = _STEADY | set(steady)
        self.locals: dict[str, Link] = {}  # the local names that were replaced, and where they are set

    def text(
        self, expr: forms.Expr, depth: int = 0, own: str = "", given: frozenset[str] = frozenset()
    ) -> str | Refused:
        """The text of an expression without local names, but for those that are ``given``; why there is none, else."""
        pieces: list[tuple[int, int, str]] = []
        text, facts = self.module.source.text, self.module.facts
        for name in self._names(expr, given):
            if isinstance(name, Refused):
                return name
            start, end = facts.span(name.at)
            if name.id == self.own:
                pieces.append((start, end, own or name.id))
            elif name.id in self.method.names:
                value = self._value(name.id, depth)
                if isinstance(value, Refused):
                    return value
                inner = self.text(value, depth + 1, own)
                if isinstance(inner, Refused):
                    return inner
                simple = isinstance(value, (forms.Name, forms.Attr, forms.Sub, forms.Call, forms.Const, forms.FString))
                apart = simple or _is_item(text, start, end)
                pieces.append((start, end, inner if apart else f"({inner})"))
        start, end = facts.span(expr.at)
        if "#" in text[start:end] or '"""' in text[start:end] or "'''" in text[start:end]:
            return Refused("a comment or a long string stands in the way")
        return mending.substituted(text, start, end, pieces)

    def _value(self, name: str, depth: int) -> forms.Expr | Refused:
        """The only value of a local name."""
        if any(param.name == name for param in self.method.function.params):
            return Refused(f"`{name}` is given to the method")
        bound = [link for link in links_of(self.method) if name in link.changes and not link.blocks]
        within = [link for link in links_of(self.method) if name in link.changes and link.blocks]
        stmt = bound[0].stmt if len(bound) == 1 else None
        whole = isinstance(stmt, forms.Assign) and len(stmt.targets) == 1 and isinstance(stmt.targets[0], forms.Name)
        if (
            not whole
            or not isinstance(stmt, forms.Assign)
            or bound[0].parent is not None
            or within
            or depth > MAX_DEPTH
        ):
            return Refused(f"`{name}` is not set once, at the top of the method")
        self.locals[name] = bound[0]
        return stmt.value

    def _names(self, expr: forms.Expr, inner: frozenset[str]) -> Iterator[forms.Name | Refused]:
        """The names that an expression takes from around it; what may differ from sample to sample is refused."""
        if isinstance(expr, forms.Name):
            if expr.id == self.own:
                yield Refused("the object itself is handed on")
            elif expr.id not in inner:
                yield expr
            return
        if isinstance(expr, forms.Attr) and isinstance(expr.value, forms.Name) and expr.value.id == self.own:
            reason = self._attribute(expr.name)
            yield Refused(reason) if reason else expr.value
            return
        if isinstance(expr, forms.Comp):
            inner |= {name for clause in expr.clauses for name in target_names(clause.target)}
        elif isinstance(expr, forms.Lambda):
            inner |= {param.name for param in expr.params}
        elif isinstance(expr, forms.Call):
            name = expr.func.name if isinstance(expr.func, forms.Attr) else dotted(expr.func) or ""
            if name not in self.steady:
                yield Refused(f"`{self.module.line(expr.func.at)}(...)` may give something else each time")
                return
            if isinstance(expr.func, forms.Name) and expr.func.id not in self.method.names:
                yield from (found for arg in expr.args for found in self._names(arg.value, inner))
                return
        elif isinstance(expr, (forms.Walrus, forms.Await, forms.Yield, forms.Other)):
            yield Refused("it is written in a way that cannot be moved with certainty")
            return
        for child in children(expr):
            yield from self._names(child, inner)

    def _attribute(self, name: str) -> str:
        """Why an attribute may not be what the constructor has made it, if so."""
        if any(name in cls.functions for cls in self.classes):
            return f"`{name}` is a method or property"
        if class_edits.set_elsewhere(self.project, self.classes, name):
            return f"`self.{name}` is set elsewhere, too"
        return ""

    def unused_locals(self, gone: Iterable[Link]) -> list[Link]:
        """The statements that set replaced names nobody else asks for, once some statements are gone."""
        gone = set(gone)
        found: list[Link] = []
        for name, link in reversed(self.locals.items()):
            others = (other for other in links_of(self.method) if other not in gone and other not in found)
            if not any(other is not link and mentions(other, name) for other in others):
                found.append(link)
        return found


def _is_item(text: str, start: int, end: int) -> bool:
    """Whether brackets or commas stand around a range: whatever is put there stays one."""
    return text[:start].rstrip()[-1:] in ("(", ",", "=", "[") and text[end:].lstrip()[:1] in (")", ",", "]")


def mentions(link: Link, name: str) -> bool:
    """Whether a name stands in a statement, its blocks apart."""
    return any(
        isinstance(expr, forms.Name) and expr.id == name for root in expressions(link.stmt) for expr in descend(root)
    )
