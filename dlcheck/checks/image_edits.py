"""The fix for images that are opened and kept unread: their paths are kept, and each is opened where it is used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dlcheck.checks import class_edits, mending
from dlcheck.checks.class_edits import Use
from dlcheck.checks.report import make_fix
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Edit, Fix
from dlcheck.model.data.lazy_images import LazyImages
from dlcheck.model.datasets import DatasetClass
from dlcheck.model.flow import links_of
from dlcheck.model.scopes import Link, Scope, descend, dotted, expressions, last_name

_TOGETHER = Refused("the image is kept together with other things")
# Calls that make a path of others; what else a call gives may be an open file.
_PATHS = frozenset(
    {"join", "Path", "str", "format", "joinpath", "with_suffix", "with_name", "replace", "abspath", "expanduser",
     "realpath", "zfill"}
)  # fmt: skip


def kept_as_paths(dataset: DatasetClass, images: LazyImages) -> Fix | Refused:
    """Paths in the place of images, in the container and wherever the class uses it."""
    scope = images.link.scope
    owner = scope.owner
    if owner is None or owner not in dataset.project.lineage(dataset.cls):
        return Refused("the images are opened outside of the class")
    call = next(site.expr for site in images.module.calls if site.expr.at == images.at)
    assert isinstance(call, forms.Call)
    plan = _Plan(dataset, owner, scope, images, call)
    refused = plan.find()
    if refused is not None:
        return refused
    return make_fix("unsafe", "Keep the paths, and open an image where it is used", [*plan.edits()])


@dataclass
class _Plan:
    dataset: DatasetClass
    owner: Scope
    scope: Scope
    images: LazyImages
    call: forms.Call  # of ``Image.open``, or of ``list`` around ``map``
    attribute: str = ""
    opener: str = ""
    keeper: Link | None = None
    uses: list[Use] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.module = self.images.module
        self.source, self.facts = self.module.source, self.module.facts
        self.own = class_edits.own_name(self.scope)
        self.classes = class_edits.family(self.dataset.project, self.owner)

    # -- what stands in the way

    def find(self) -> Refused | None:
        """Find out what has to be changed; why it cannot be, if so."""
        if any(isinstance(outer.stmt, (forms.Try, forms.With)) for outer in self.images.link.outer()):
            return Refused("they are opened inside a `try` or `with`")
        unusual = class_edits.unusual(self.classes)
        if unusual:
            return Refused(unusual)
        found = self._mapped() if self._is_map() else self._opened()
        return found or self._used()

    def _is_map(self) -> bool:
        return dotted(self.call.func) in ("list", "tuple")

    def _mapped(self) -> Refused | None:
        inner = self.call.args[0].value
        assert isinstance(inner, forms.Call)
        if len(inner.args) != 2 or any(arg.star or arg.name for arg in inner.args):
            return Refused("`map` goes through several things at once")
        return self._opener(inner.args[0].value) or self._container(self.call)

    def _opened(self) -> Refused | None:
        if len(self.call.args) != 1 or self.call.args[0].star:
            return Refused("`Image.open` is given more than the path")
        path = self.call.args[0].value
        if not all(_is_path(part) for part in descend(path)):
            return Refused(f"`{self.module.line(path.at)}` may be an open file")
        return self._opener(self.call.func) or self._container(self.call)

    def _opener(self, func: forms.Expr) -> Refused | None:
        name = dotted(func)
        if name is None or name.partition(".")[0] not in self.module.scope.names:
            return Refused("the function that opens them is not known in the whole file")
        self.opener = name
        return None

    def _container(self, value: forms.Expr) -> Refused | None:
        """The attribute that keeps them."""
        stmt = self.images.link.stmt
        if self.images.link in self.images.kept_by:
            self.keeper = self.images.link
        elif len(self.images.kept_by) == 1:
            (self.keeper,) = self.images.kept_by
            return self._taken_up(stmt)
        else:
            return Refused("each image is kept in several places")
        if isinstance(stmt, (forms.Assign, forms.Declare)) and not isinstance(_first_target(stmt), forms.Sub):
            if isinstance(stmt, forms.Assign) and len(stmt.targets) != 1:
                return Refused("the images are kept under several names")
            made = stmt.value
            whole = made is value or isinstance(made, forms.Comp) and made.kind != "set" and made.value is value
            return self._named(_first_target(stmt)) if whole else _TOGETHER
        return self._kept(value)

    def _taken_up(self, stmt: forms.Stmt) -> Refused | None:
        """``image = Image.open(path)``, and then it is kept."""
        target = _first_target(stmt)
        if not isinstance(stmt, forms.Assign) or not isinstance(target, forms.Name) or self.keeper is None:
            return Refused("it is not known what keeps the images")
        mentions = [
            expr
            for link in links_of(self.scope)
            for root in expressions(link.stmt)
            for expr in descend(root)
            if isinstance(expr, forms.Name) and expr.id == target.id
        ]
        if len(mentions) != 2 or len(stmt.targets) != 1:
            return Refused(f"`{target.id}` is looked at before it is kept")
        between = self.images.link.block[self.images.link.index + 1 :]
        if self.keeper not in between:
            return Refused("an image is kept under a condition")
        names = {expr.id for expr in descend(self.call) if isinstance(expr, forms.Name)}
        if any(names & link.changes for link in between[: between.index(self.keeper)]):
            return Refused("the path changes before the image is kept")
        kept = next((expr for expr in mentions if expr is not target), None)
        return _TOGETHER if kept is None else self._kept(kept)

    def _kept(self, value: forms.Expr) -> Refused | None:
        """``self.images.append(image)``, ``self.images[key] = image``."""
        assert self.keeper is not None
        stmt = self.keeper.stmt
        if isinstance(stmt, forms.Do) and isinstance(stmt.value, forms.Call):
            func, args = stmt.value.func, stmt.value.args
            if isinstance(func, forms.Attr) and func.name == "append" and [arg.value for arg in args] == [value]:
                return self._named(func.value)
        elif isinstance(stmt, forms.Assign) and len(stmt.targets) == 1 and stmt.value is value:
            target = stmt.targets[0]
            if isinstance(target, forms.Sub):
                return self._named(target.value)
        return _TOGETHER

    def _named(self, target: forms.Expr | None) -> Refused | None:
        if not isinstance(target, forms.Attr) or not self.own or dotted(target.value) != self.own:
            return Refused("they are collected under a local name first")
        self.attribute = target.name
        return None

    def _used(self) -> Refused | None:
        """Whether all that is done with the container can be done with one of paths."""
        if any(self.attribute in cls.names for cls in self.classes):
            return Refused(f"`{self.attribute}` is a name of the class itself, too")
        self.uses = [*class_edits.uses(self.dataset.project, self.classes, self.attribute)]
        for use in self.uses:
            if isinstance(use.link.stmt, forms.Declare):
                return Refused("its annotation says that it holds images")
            if not use.is_own or use.module is not self.module:
                return Refused(f"`{use.module.line(use.expr.at)}` is used outside of the class")
            if use.link.scope.has_decorator("property") and use.link.scope.name == self.attribute:
                return Refused("it is a property, too")
            if not (use.link is self.keeper or self._is_begun(use) or self._is_asked(use) or self._is_taken(use)):
                start, end = self.facts.span((use.parent or use.expr).at)
                return Refused(f"`{' '.join(self.source.text[start:end].split())}` needs the images themselves")
        return None

    def _is_begun(self, use: Use) -> bool:
        """``self.images = []``."""
        stmt = use.link.stmt
        if not isinstance(stmt, forms.Assign) or len(stmt.targets) != 1 or stmt.targets[0] is not use.expr:
            return False
        value = stmt.value
        if isinstance(value, forms.Call):
            return dotted(value.func) in ("list", "dict") and not value.args
        return (
            isinstance(value, forms.Sequence) and not value.items or isinstance(value, forms.Dict) and not value.entries
        )

    def _is_asked(self, use: Use) -> bool:
        """``len(self.images)``; of a dict, ``name in self.images``."""
        parent = use.parent
        if isinstance(parent, forms.Call):
            return dotted(parent.func) == "len"
        keeper = self.keeper.stmt if self.keeper is not None else None
        is_dict = isinstance(keeper, forms.Assign) and isinstance(keeper.targets[0], forms.Sub)
        return is_dict and isinstance(parent, forms.Compare) and parent.rights == (use.expr,) and "in" in parent.ops[0]

    def _is_taken(self, use: Use) -> bool:
        """``self.images[index]``, where it is read."""
        sub, stmt = use.parent, use.link.stmt
        if (
            not isinstance(sub, forms.Sub)
            or sub.value is not use.expr
            or isinstance(sub.index, (forms.Slice, forms.Sequence))
        ):
            return False
        if self.opener.partition(".")[0] in use.link.scope.names:
            return False
        if isinstance(stmt, (forms.Delete, forms.AugAssign, forms.With)):
            return False
        if isinstance(stmt, forms.Assign) and any(sub in [*descend(target)] for target in stmt.targets):
            return False
        # Called for what it does to the image, which stays in the container.
        return not (
            isinstance(stmt, forms.Do) and isinstance(stmt.value, forms.Call) and sub in [*descend(stmt.value.func)]
        )

    # -- edits

    def edits(self) -> Iterator[Edit | Refused]:
        assert self.keeper is not None
        name = self._new_name()
        if not name:
            yield Refused("all names that would fit are taken")
            return
        yield from self._paths()
        for use in self.uses:
            start, end = self.facts.span(use.expr.name_at)
            yield Edit(self.source.place(start, end), name)
            if use.link is not self.keeper and isinstance(use.parent, forms.Sub):
                begin, stop = self.facts.span(use.parent.at)
                yield Edit(self.source.place(begin, begin), f"{self.opener}(")
                yield Edit(self.source.place(stop, stop), ")")

    def _new_name(self) -> str:
        taken = class_edits.taken_names(self.classes)
        one = class_edits.singular(self.attribute)
        wanted = (f"{one}_paths", f"{one}_files") if one != "path" else ("image_paths",)
        private = "_" if self.attribute.startswith("_") else class_edits.prefix(self.dataset)
        return next((private + name for name in wanted if private + name not in taken), "")

    def _paths(self) -> Iterator[Edit | Refused]:
        """The paths, where the images were opened."""
        assert self.keeper is not None
        text = self.source.text
        start, end = self.facts.span(self.call.at)
        if "#" in text[start:end]:
            yield Refused("a comment stands in the way")
            return
        if self._is_map():
            inner = self.call.args[0].value
            assert isinstance(inner, forms.Call)
            start, end = self.facts.span(inner.at)
            given = inner.args[1].value
            if dotted(self.call.func) == "list" and _is_list(given):
                start, end = self.facts.span(self.call.at)
            yield Edit(self.source.place(start, end), text[slice(*self.facts.span(given.at))])
            return
        path = text[slice(*self.facts.span(self.call.args[0].value.at))]
        if self.keeper is not self.images.link:
            (kept,) = (
                expr
                for root in expressions(self.keeper.stmt)
                for expr in descend(root)
                if isinstance(expr, forms.Name) and expr.id in self.images.link.changes
            )
            yield mending.remove_statement(self.source, self.facts, self.images.link)
            start, end = self.facts.span(kept.at)
        stmt = self.keeper.stmt
        made = stmt.value if isinstance(stmt, (forms.Assign, forms.Declare)) else None
        if isinstance(made, forms.Comp) and made.kind == "list" and self._is_whole(made):
            start, end = self.facts.span(made.at)
            given = made.clauses[0].iter
            path = text[slice(*self.facts.span(given.at))]
            path = path if _is_list(given) else f"list({path})"
            if "#" in text[start:end]:
                yield Refused("a comment stands in the way")
                return
        yield Edit(self.source.place(start, end), path)

    def _is_whole(self, made: forms.Comp) -> bool:
        """``[Image.open(path) for path in paths]``."""
        path = self.call.args[0].value
        clause = made.clauses[0]
        plain = len(made.clauses) == 1 and not clause.ifs and isinstance(clause.target, forms.Name)
        return plain and dotted(path) == dotted(clause.target)


def _first_target(stmt: forms.Stmt) -> forms.Expr | None:
    if isinstance(stmt, forms.Assign):
        return stmt.targets[0]
    return stmt.target if isinstance(stmt, forms.Declare) else None


def _is_path(expr: forms.Expr) -> bool:
    if isinstance(expr, forms.Call):
        return last_name(expr.func) in _PATHS
    return not isinstance(expr, (forms.Walrus, forms.Await, forms.Yield, forms.Other, forms.Lambda))


def _is_list(expr: forms.Expr) -> bool:
    return isinstance(expr, forms.Call) and dotted(expr.func) in ("list", "sorted", "os.listdir", "glob.glob")
