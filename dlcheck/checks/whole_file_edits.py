"""The fix for a file that is read whole for each sample: it is read on first use, and kept by a cached property."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dlcheck.checks import class_edits, mending, moving
from dlcheck.checks.class_edits import with_parents
from dlcheck.checks.read_only import ReadOnly
from dlcheck.checks.report import make_fix
from dlcheck.checks.settled import Settled
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Edit, Fix
from dlcheck.model.data.reading import Read
from dlcheck.model.data.sample_code import SampleCode
from dlcheck.model.flow import links_in, links_of
from dlcheck.model.scopes import Link, Module, Scope, descend, dotted, expressions, last_name, target_names

# What a reader gives, where nothing else has a name for it.
_KINDS = {
    "load": "data", "loadtxt": "rows", "genfromtxt": "rows", "read_csv": "table", "read_table": "table",
    "readlines": "lines", "read": "content", "loadmat": "data",
}  # fmt: skip
# Methods that make something else of the whole.
_WHOLE = frozenset({"astype", "to_numpy", "float", "numpy", "splitlines", "split", "strip", "decode", "tolist"})
_ANY_FILE = frozenset({"path", "file", "filename", "root", "data_path", "file_path", "filepath", "fname", "folder"})


def read_once(code: SampleCode, read: Read) -> Fix | Refused:
    """A cached property that reads the file, and its value in the place of the call."""
    owner = read.link.scope.owner
    if owner is None or code.dataset is None or owner not in code.project.lineage(code.dataset.cls):
        return Refused("it is read in a function that others may call, too")
    if not read.shared:
        return Refused("which of the files to keep, and how many, is for the author to say")
    found = next((site.expr for site in read.module.calls if site.expr.at == read.at), None)
    if not isinstance(found, forms.Call):
        return Refused("HDF5 reads the rows alone that it is asked for, without the `[:]`")
    plan = _Plan(code, owner, read.link, found)
    reason = plan.obstacle()
    return Refused(reason) if reason else make_fix("unsafe", "Read it on first use, and keep it", [*plan.edits()])


@dataclass
class _Plan:
    code: SampleCode
    owner: Scope
    link: Link
    unit: forms.Expr  # what is kept
    around: tuple[forms.Expr, ...] = ()
    opened: Link | None = None  # the ``with`` that opens the file
    text: str = ""
    heads: str = ""
    gone: list[Link] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert isinstance(self.unit, forms.Call)
        self.call = self.unit
        self.project, self.module = self.code.project, self.owner.module
        self.source, self.facts = self.module.source, self.module.facts
        self.method = self.link.scope
        self.classes = class_edits.family(self.project, self.owner)

    # -- what stands in the way

    def obstacle(self) -> str:
        """Why what is read cannot be kept, if so."""
        if self.method.module is not self.module or not class_edits.own_name(self.method):
            return "it is read outside of the class"
        minimum = self.project.targets.python_min
        if minimum is not None and minimum < (3, 8):
            return "`functools.cached_property` needs Python 3.8"
        return (
            class_edits.unusual(self.classes)
            or self._placed()
            or ("the class changes files, which may be this one" if class_edits.writes_files(self.classes) else "")
            or self._archive()
            or self._extended()
            or self._written()
            or self._changed()
        )

    def _placed(self) -> str:
        """Find the call in its statement."""
        for root in expressions(self.link.stmt):
            for expr, around in with_parents(root, ()):
                if expr is self.unit:
                    self.around = around
        if self.method.function.is_generator or self.method.function.is_async:
            return "it is read in a generator"
        if any(isinstance(expr, (forms.Comp, forms.Lambda)) for expr in self.around):
            return "it is read inside a comprehension or lambda"
        return ""

    def _archive(self) -> str:
        """Of an archive the member is kept; the file itself would stay open."""
        if last_name(getattr(self.unit, "func", None)) != "load" or isinstance(self.link.stmt, forms.With):
            return "it is opened in a `with`" if isinstance(self.link.stmt, forms.With) else ""
        parent = self.around[0] if self.around else None
        func = getattr(self.unit, "func", None)
        module = getattr(getattr(func, "value", None), "id", "")
        if module not in ("np", "numpy"):
            return ""
        if _is_member(parent):
            return ""
        stmt = self.link.stmt
        names = set(target_names(stmt.targets[0])) if isinstance(stmt, forms.Assign) else set()
        if any(
            _is_member(expr) and isinstance(expr, forms.Sub) and last_name(expr.value) in names
            for other in links_of(self.method)
            for root in expressions(other.stmt)
            for expr in descend(root)
        ):
            return "it may be an archive, which stays open as long as it is kept"
        return ""

    def _extended(self) -> str:
        """What is done to the whole in any case is done once, too: ``["annotations"]``, ``.astype(...)``."""
        while self.around:
            parent = self.around[0]
            called = self.around[1] if len(self.around) > 1 else None
            if _is_member(parent) and isinstance(parent, forms.Sub) and parent.value is self.unit:
                self.unit, self.around = parent, self.around[1:]
            elif not isinstance(parent, forms.Attr):
                break
            elif isinstance(called, forms.Call) and called.func is parent and _does_same(called):
                self.unit, self.around = called, self.around[2:]
            else:
                break
        return ""

    def _written(self) -> str:
        """Find out how a property says it."""
        names = {expr.id for expr in descend(self.unit) if isinstance(expr, forms.Name)}
        given: frozenset[str] = frozenset()
        for outer in self.link.outer():
            if isinstance(outer.stmt, forms.With):
                handles = {name for item in outer.stmt.items for name in target_names(item.target)}
                if handles & names:
                    self.opened, given = outer, frozenset(handles)
                    break
        steady = {last_name(expr.func) for expr in descend(self.unit) if isinstance(expr, forms.Call)}
        settled = Settled(self.project, self.owner, self.method, steady)
        own = self._own()
        text = settled.text(self.unit, own=own, given=given)
        if isinstance(text, Refused):
            return text.reason
        self.text = text
        self.gone = [self.opened] if self.opened is not None else []
        if self.opened is not None:
            reason = self._head(settled, given)
            if reason:
                return reason
        self.gone = settled.unused_locals([self.link, *self.gone])
        if any(not mending.stands_alone(self.source, self.facts.span(link.stmt.at)) for link in self.gone):
            return "several statements stand on one line"
        return ""

    def _head(self, settled: Settled, handles: frozenset[str]) -> str:
        assert self.opened is not None
        stmt = self.opened.stmt
        assert isinstance(stmt, forms.With)
        unit = {id(expr) for expr in descend(self.unit)}
        for link in links_in(self.opened):
            for root in expressions(link.stmt):
                for expr in descend(root):
                    if isinstance(expr, forms.Name) and expr.id in handles and id(expr) not in unit:
                        return f"`{expr.id}` is read in several places"
        items: list[str] = []
        for item in stmt.items:
            text = settled.text(item.value, own=self._own())
            if isinstance(text, Refused):
                return text.reason
            if not isinstance(item.target, forms.Name):
                return "the file is opened in an unusual way"
            items.append(f"{text} as {item.target.id}")
        self.heads = ", ".join(items)
        if self.link.stmt.at not in {link.stmt.at for link in self.opened.blocks["body"]}:
            return "it is read under a condition"
        return ""

    def _changed(self) -> str:
        if ReadOnly(self.project, self.classes).holds(self.unit, self.around, self.link):
            return ""
        return "what was read may be changed afterwards, for all samples then"

    def _own(self) -> str:
        return class_edits.own_name(self.owner.functions.get("__init__", self.method))

    # -- edits

    def edits(self) -> Iterator[Edit | Refused]:
        if self._is_property():
            decorator, imports = _cached_property(self.module)
            start, end = self.facts.span(self.method.decorators()[0].at)
            yield Edit(self.source.place(start, end), decorator)
            yield from imports
            return
        name, own = self._name(), class_edits.own_name(self.method)
        decorator, imports = _cached_property(self.module)
        start, end = self.facts.span(self.unit.at)
        if "#" in self.source.text[start:end]:
            yield Refused("a comment stands in the way")
            return
        if self.opened is None:
            yield Edit(self.source.place(start, end), f"{own}.{name}")
        else:
            yield self._without_head(f"{own}.{name}")
        for link in self.gone:
            yield mending.remove_statement(self.source, self.facts, link)
        lines = [f"@{decorator}", f"def {name}({self._own()}):"]
        text = " ".join(self.text.split()) if "\n" in self.text else self.text
        lines += [f"    with {self.heads}:", f"        return {text}"] if self.heads else [f"    return {text}"]
        after = self.owner.functions.get("__init__", self.method)
        yield mending.add_methods(self.source, self.facts, after, [lines])
        yield from imports

    def _is_property(self) -> bool:
        """Whether a property does nothing but read the file: it only has to keep what it gives."""
        stmt, outer = self.link.stmt, self.opened or self.link
        plain = len(self.method.decorators()) == 1 and dotted(self.method.decorators()[0]) == "property"
        alone = outer.parent is None and len(outer.block) == 1 and len(self.link.block) == 1
        return plain and alone and isinstance(stmt, forms.Return) and stmt.value is self.unit

    def _without_head(self, value: str) -> Edit | Refused:
        """The body of the ``with``, with the value in it, at the depth of the ``with``."""
        assert self.opened is not None
        text = self.source.text
        whole = moving.lines_of(self.source, self.facts, self.opened)
        if isinstance(whole, Refused):
            return whole
        body = self.opened.blocks["body"]
        first = moving.lines_of(self.source, self.facts, body[0])
        if isinstance(first, Refused):
            return first
        head = mending.line_start(text, self.facts.span(self.opened.stmt.at)[0])
        if "#" in text[head : first.start]:
            return Refused("a comment stands in the way")
        old, new = mending.indentation(text, self.facts.span(body[0].stmt.at)[0]), mending.indentation(text, head)
        start, end = self.facts.span(self.unit.at)
        changed = mending.substituted(text, first.start, whole.end, [(start, end, value)])
        moved = moving.reindented(changed, old, new)
        if isinstance(moved, Refused):
            return moved
        return Edit(self.source.place(head, whole.end), moved)

    def _name(self) -> str:
        taken = class_edits.taken_names(self.classes)
        stmt, wanted = self.link.stmt, []
        if isinstance(stmt, forms.Assign) and stmt.value is self.unit and isinstance(stmt.targets[0], forms.Name):
            wanted.append(stmt.targets[0].id)
        wanted += _hints(self.unit, self.opened)
        kind = _KINDS.get(last_name(self.call.func), "data")
        wanted += [kind, f"all_{kind}", *(f"{kind}_{number}" for number in range(2, 30))]
        assert self.code.dataset is not None
        begin = class_edits.prefix(self.code.dataset)
        return next(begin + name for name in wanted if begin + name not in taken)


def _is_member(expr: forms.Expr | None) -> bool:
    """``["images"]``."""
    return isinstance(expr, forms.Sub) and isinstance(expr.index, forms.Const) and isinstance(expr.index.value, str)


def _does_same(call: forms.Call) -> bool:
    """Whether a method gives the same for the same whole."""
    plain = all(isinstance(arg.value, forms.Const) or (dotted(arg.value) or "").startswith(("np.", "torch.", "numpy."))
                for arg in call.args)  # fmt: skip
    return plain and last_name(call.func) in _WHOLE


def _hints(unit: forms.Expr, opened: Link | None) -> Iterator[str]:
    """Names for what is read: the key of a member, the name of the file."""
    if isinstance(unit, forms.Sub) and isinstance(unit.index, forms.Const):
        yield from _identifier(str(unit.index.value))
    stmt = opened.stmt if opened is not None else None
    roots = [unit, *(item.value for item in stmt.items)] if isinstance(stmt, forms.With) else [unit]
    for root in roots:
        for expr in descend(root):
            if isinstance(expr, forms.Const) and isinstance(expr.value, str) and "." in expr.value.strip("."):
                yield from _identifier(expr.value.rpartition("/")[2].partition(".")[0])
    for root in roots:
        for expr in descend(root):
            if isinstance(expr, forms.Attr) and expr.name.endswith(("_path", "_file")):
                yield from _identifier(expr.name.rpartition("_")[0])


def _identifier(word: str) -> Iterator[str]:
    from keyword import iskeyword

    bare = word.lower().replace("-", "_").strip("_")
    if bare.isidentifier() and bare.isascii() and bare not in _ANY_FILE and not iskeyword(bare):
        yield bare


def _cached_property(module: Module) -> tuple[str, list[Edit | Refused]]:
    """How a module writes ``functools.cached_property``, and the import that it takes."""
    for stmt, link in module.imports:
        if isinstance(stmt, forms.ImportFrom) and stmt.module == "functools" and mending.runs_before(module, link):
            for alias in stmt.aliases:
                if alias.name == "cached_property":
                    return alias.bound, []
    name, imports = mending.alias_of(module, "functools", "functools")
    return f"{name}.cached_property", imports
