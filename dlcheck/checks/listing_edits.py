"""The fix for folders that are listed anew for each sample: they are listed once, sorted, when the dataset is built."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dlcheck.checks import class_edits, moving
from dlcheck.checks.class_edits import with_parents
from dlcheck.checks.report import make_fix
from dlcheck.checks.settled import Settled
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Edit, Fix
from dlcheck.model import library
from dlcheck.model.data.reading import LISTINGS, Listing, repeated_listings
from dlcheck.model.data.sample_code import PER_ITEM, SampleCode
from dlcheck.model.flow import links_of
from dlcheck.model.scopes import Link, Scope, Site, descend, dotted, expressions, last_name
from dlcheck.model.workers import worker_code

_LISTING_NAMES = frozenset({"iterdir", "rglob", *(path.rpartition(".")[2] for path in LISTINGS)})
# These give lists, of names or paths; of the others some give iterators, some folders with all that is in them.
_LISTS = {"os.listdir": "names", "glob.glob": "paths"}
_TREES = frozenset({"os.scandir", "os.walk", "os.fwalk"})
# What may be done with a list without changing it, or keeping it.
_READERS = frozenset({"len", "sorted", "list", "tuple", "set", "enumerate", "zip", "any", "all", "choice", "sample"})
_READING_METHODS = frozenset({"index", "count", "copy"})
# Names of folders that say nothing of what is in them.
_ANY_FOLDER = frozenset({"root", "path", "dir", "folder", "data", "dataset", "base", "directory", "file", "filename"})


def listed_once(code: SampleCode, listing: Listing) -> Fix | Refused:
    """The listing in ``__init__``, and its result in the place of the call; for all listings of the class at once."""
    owner = listing.call.site.scope.owner
    if owner is None or code.dataset is None or owner not in code.project.lineage(code.dataset.cls):
        return Refused("it is listed in a function that others may call, too")
    plan = _Plan(code, owner)
    reason = plan.obstacle() or plan.find(listing)
    return Refused(reason) if reason else make_fix("unsafe", "List it once, sorted, in `__init__`", [*plan.edits()])


@dataclass
class _Listed:
    """A listing of a class: what is moved, and its text; or why it cannot be."""

    site: Site
    whole: forms.Expr
    text: str = ""
    reason: str = ""
    name: str = ""
    settled: Settled | None = None


@dataclass
class _Plan:
    code: SampleCode
    owner: Scope
    found: list[_Listed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.project, self.module = self.code.project, self.owner.module
        self.source, self.facts = self.module.source, self.module.facts
        self.classes = class_edits.family(self.project, self.owner)

    # -- what stands in the way

    def obstacle(self) -> str:
        """Why the constructor cannot list anything, if so."""
        init = self.owner.functions.get("__init__")
        if init is None or not class_edits.own_name(init):
            return "the class has no `__init__` of its own"
        if any(isinstance(link.stmt, forms.Return) for link in links_of(init)) or init.body[-1].leaves:
            return "`__init__` may end before its last line"
        if _uses_itself(init):
            return "`__init__` takes samples itself"
        for cls in self.project.subclasses(self.owner):
            own = cls.functions.get("__init__")
            if own is not None and not _goes_on(own):
                return f"`{cls.name}` does not call this `__init__`"
        if class_edits.writes_files(self.classes):
            return "the class changes files, which may be those that it lists"
        return class_edits.unusual(self.classes)

    def find(self, wanted: Listing) -> str:
        """Look at all listings of the class; why the one that is wanted cannot be moved, if so."""
        assert self.code.dataset is not None
        instance = self.code.dataset.instance
        seen: set[int] = set()
        for role, methods in (("item", PER_ITEM), ("length", ("__len__",))):
            code = SampleCode(
                self.project, worker_code(self.project, instance, methods), self.code.owner, role, self.code.dataset
            )
            for listing in repeated_listings(code):
                site = listing.call.site
                if site.scope.owner is self.owner and site.expr.at not in seen:
                    seen.add(site.expr.at)
                    self.found.append(self._listed(listing))
        self.found.sort(key=lambda one: one.site.expr.at)
        own = next((one for one in self.found if one.site.expr.at == wanted.call.call.at), None)
        if own is None:
            return "it is listed in a function that others may call, too"
        return own.reason or self._in_order()

    def _in_order(self) -> str:
        """Images and labels may be listed apart: all are sorted, or none."""
        movable = {one.site.expr.at for one in self.found if not one.reason}
        for cls in self.classes:
            for method in cls.functions.values():
                for site in method.module.calls_by_scope.get(method, ()):
                    call = site.expr
                    if not isinstance(call, forms.Call) or last_name(call.func) not in _LISTING_NAMES:
                        continue
                    relevant = method.name == "__init__" or any(one.site.expr.at == call.at for one in self.found)
                    if relevant and call.at not in movable and not _is_ordered(call, site.link):
                        return f"`{method.module.line(call.at)}` is not sorted, and its order may go with this one"
        return ""

    def _listed(self, listing: Listing) -> _Listed:
        site, call = listing.call.site, listing.call.call
        path = library.canonical(listing.call.path)
        around = next(
            around for root in expressions(site.link.stmt) for expr, around in with_parents(root, ()) if expr is call
        )
        made = _Listed(site, call)
        if site.link.scope.function.is_generator or site.link.stmt.at not in {
            link.stmt.at for link in links_of(site.scope)
        }:
            made.reason = "it is listed inside a function of the method"
        elif path in _TREES or last_name(call.func) in ("walk", "scandir"):
            made.reason = "what it gives is more than names"
        if made.reason:
            return made
        steady = {last_name(call.func)}
        made.settled = Settled(self.project, self.owner, site.scope, steady)
        text = made.settled.text(call, own=self.own)
        if isinstance(text, Refused):
            made.reason = text.reason
            return made
        is_list, outer = path in _LISTS, around
        text = f"sorted({text})"
        sorts = bool(around) and _is_sorted(around[0], call)
        best: tuple[forms.Expr, str, tuple[forms.Expr, ...]] | None = (call, text, around) if is_list else None
        for number, parent in enumerate(outer):
            inner = outer[number - 1] if number else call
            if not _takes(parent, inner):
                break
            whole = Settled(self.project, self.owner, site.scope, steady)
            written = whole.text(parent, own=self.own)
            if isinstance(written, Refused):
                break
            if _is_call(parent, "sorted"):
                sorts = True
            if _is_call(parent, "list") and inner is call:
                written = text
            elif not (sorts or any(_is_call(one, "sorted") for one in outer[number:])):
                written = self._sorted_inside(parent, call, whole)
            if not isinstance(parent, forms.Comp) or parent.kind == "list":
                best, made.settled = (parent, written, around[number + 1 :]), whole
        if best is None:
            made.reason = "its results are taken one by one"
            return made
        made.whole, made.text, rest = best
        if not self._only_read(made.whole, rest, site.link, 0):
            made.reason = "the list may be changed afterwards"
        made.name = self._name(made, "names" if path == "os.listdir" else "paths")
        return made

    @property
    def own(self) -> str:
        return class_edits.own_name(self.owner.functions["__init__"])

    def _sorted_inside(self, whole: forms.Expr, call: forms.Call, settled: Settled) -> str:
        """The text of an expression with the listing in it sorted."""
        marked = settled.text(call, own=self.own)
        text = settled.text(whole, own=self.own)
        assert isinstance(marked, str)
        assert isinstance(text, str)
        return text.replace(marked, f"sorted({marked})", 1)

    def _only_read(self, expr: forms.Expr, around: tuple[forms.Expr, ...], link: Link, depth: int) -> bool:
        """Whether a list is not changed where it stands, nor by whom it is handed to."""
        parent = around[0] if around else None
        stmt = link.stmt
        if isinstance(parent, forms.Sub):
            return (
                parent.value is expr
                and not isinstance(stmt, (forms.AugAssign, forms.Delete))
                and not (
                    isinstance(stmt, forms.Assign) and any(parent in [*descend(target)] for target in stmt.targets)
                )
            )
        if isinstance(parent, forms.Call):
            return parent.func is not expr and last_name(parent.func) in _READERS
        if isinstance(parent, forms.Attr):
            return parent.name in _READING_METHODS
        if isinstance(parent, forms.Comp):
            return any(clause.iter is expr for clause in parent.clauses)
        if parent is not None:
            return isinstance(parent, forms.Compare)
        if isinstance(stmt, forms.For):
            return True
        if isinstance(stmt, forms.Assign) and len(stmt.targets) == 1 and isinstance(stmt.targets[0], forms.Name):
            return self._name_only_read(stmt.targets[0], link, depth)
        return isinstance(stmt, forms.Return) and self._result_only_read(link.scope, depth)

    def _name_only_read(self, target: forms.Name, link: Link, depth: int) -> bool:
        if target.id in link.scope.not_local or depth > 3:
            return False
        for other in links_of(link.scope):
            for root in expressions(other.stmt):
                for expr, around in with_parents(root, ()):
                    if isinstance(expr, forms.Name) and expr.id == target.id and expr is not target:
                        if not around and isinstance(other.stmt, forms.Assign) and expr in other.stmt.targets:
                            continue  # it becomes something else
                        if not self._only_read(expr, around, other, depth + 1):
                            return False
        return True

    def _result_only_read(self, method: Scope, depth: int) -> bool:
        """Whether those who call a method only read what it returns."""
        if method.name.startswith("__") or depth > 3:
            return False
        is_property = method.has_decorator("property")
        for use in class_edits.uses(self.project, self.classes, method.name):
            if not use.is_own:
                return False
            expr, around = use.expr, use.around
            if not is_property:
                if not around or not isinstance(around[0], forms.Call) or around[0].func is not use.expr:
                    return False
                if not self._only_read(around[0], around[1:], use.link, depth + 1):
                    return False
            elif not self._only_read(expr, around, use.link, depth + 1):
                return False
        return True

    # -- names

    def _name(self, made: _Listed, kind: str) -> str:
        same = next((one.name for one in self.found if one.name and one.text == made.text), "")
        if same:
            return same
        taken = class_edits.taken_names(self.classes) | {one.name for one in self.found}
        stmt, wanted = made.site.link.stmt, []
        if isinstance(stmt, forms.Assign) and stmt.value is made.whole and isinstance(stmt.targets[0], forms.Name):
            wanted.append(stmt.targets[0].id)
        call = made.site.expr
        assert isinstance(call, forms.Call)
        hint = _hint(call)
        wanted += [f"{hint}_{kind}"] if hint else []
        wanted += [kind, f"file_{kind}", *(f"{kind}_{number}" for number in range(2, 12))]
        assert self.code.dataset is not None
        begin = class_edits.prefix(self.code.dataset)
        return next(begin + name for name in wanted if begin + name not in taken)

    # -- edits

    def edits(self) -> Iterator[Edit | Refused]:
        lines: dict[str, str] = {}
        for one in self.found:
            if one.reason:
                continue
            own = class_edits.own_name(one.site.scope)
            start, end = self.facts.span(one.whole.at)
            if "#" in self.source.text[start:end]:
                yield Refused("a comment stands in the way")
                return
            yield Edit(self.source.place(start, end), f"{own}.{one.name}")
            lines[one.name] = f"{self.own}.{one.name} = {' '.join(one.text.split())}"
        init = self.owner.functions["__init__"]
        yield moving.insert_below(self.source, self.facts, init.body[-1], [*lines.values()])


def _is_call(expr: forms.Expr, name: str) -> bool:
    return isinstance(expr, forms.Call) and dotted(expr.func) == name


def _is_sorted(parent: forms.Expr, expr: forms.Expr) -> bool:
    return _is_call(parent, "sorted") and isinstance(parent, forms.Call) and parent.args[0].value is expr


def _is_ordered(call: forms.Call, link: Link) -> bool:
    """Whether a listing is sorted where it stands, or only counted."""
    return any(
        isinstance(expr, forms.Call) and dotted(expr.func) in ("sorted", "len") and call in [*descend(expr)]
        for root in expressions(link.stmt)
        for expr in descend(root)
    )


def _takes(parent: forms.Expr, inner: forms.Expr) -> bool:
    """Whether an expression makes a list of a list."""
    if isinstance(parent, forms.Call):
        plain = dotted(parent.func) in ("sorted", "list", "tuple") and bool(parent.args)
        return plain and parent.args[0].value is inner and all(arg.name for arg in parent.args[1:])
    return (
        isinstance(parent, forms.Comp)
        and len(parent.clauses) == 1
        and parent.clauses[0].iter is inner
        and (parent.kind in ("list", "generator"))
    )


def _uses_itself(init: Scope) -> bool:
    """Whether a constructor asks for samples or their number, or hands the object on."""
    own = class_edits.own_name(init)
    for link in links_of(init):
        for root in expressions(link.stmt):
            for expr, around in with_parents(root, ()):
                if isinstance(expr, forms.Name) and expr.id == own:
                    parent = around[0] if around else None
                    called = len(around) > 1 and isinstance(around[1], forms.Call) and around[1].func is parent
                    if not isinstance(parent, forms.Attr):
                        if not _is_super(parent):
                            return True
                    elif called and init.owner is not None and _lists(init.owner, parent.name, 0):
                        return True
    return False


def _is_super(parent: forms.Expr | None) -> bool:
    """``super(Frames, self)``, ``Base.__init__(self)``."""
    if not isinstance(parent, forms.Call):
        return False
    return dotted(parent.func) == "super" or last_name(parent.func) == "__init__"


def _lists(cls: Scope, name: str, depth: int) -> bool:
    """Whether a method lists a folder, or calls one that does."""
    method = cls.functions.get(name)
    if method is None or depth > 3:
        return False
    for site in method.module.calls_by_scope.get(method, ()):
        call = site.expr
        if isinstance(call, forms.Call):
            inner = last_name(call.func)
            if inner in _LISTING_NAMES or inner == "len" or inner != name and _lists(cls, inner, depth + 1):
                return True
    return False


def _goes_on(init: Scope) -> bool:
    """Whether a constructor calls that of its base."""
    return any(
        isinstance(site.expr, forms.Call) and last_name(site.expr.func) == "__init__"
        for site in init.module.calls_by_scope.get(init, ())
    )


def _hint(call: forms.Call) -> str:
    """What a folder holds, by its name."""
    words: list[str] = []
    parts = [*(arg.value for arg in call.args), *([call.func.value] if isinstance(call.func, forms.Attr) else [])]
    for part in parts:
        for expr in descend(part):
            if isinstance(expr, forms.Attr):
                words.append(expr.name)
            elif isinstance(expr, forms.Const) and isinstance(expr.value, str):
                words += expr.value.strip("/").split("/")
    for word in words:
        bare = word.lower()
        for ending in ("_dir", "_path", "_root", "_folder", "_directory"):
            bare = bare.removesuffix(ending)
        if bare.isidentifier() and bare not in _ANY_FOLDER and bare not in _LISTING_NAMES | {"join"}:
            return class_edits.singular(bare)
    return ""
