"""The fix for a row of a pandas table that is taken for each sample: its columns, taken out once in ``__init__``."""

from __future__ import annotations

import re
from typing import NamedTuple

from dlcheck.checks import mending, moving
from dlcheck.checks.report import make_fix
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Edit, Fix
from dlcheck.model.data.kinds import COLUMN
from dlcheck.model.data.tables import Lookup
from dlcheck.model.flow import links_of
from dlcheck.model.project import Project
from dlcheck.model.scopes import Link, Module, Scope, children, descend, dotted, expressions, last_name

# What is given to these is a text: then the row holds objects, and each has the type of its column.
_OF_PATHS = frozenset({"join", "open", "Path", "imread", "read_image", "load", "exists", "isfile"})
_NUMBERS = frozenset({"int", "float"})
_ARRAYS = frozenset({"array", "asarray"})
_NO_TYPE = Refused("the type of its numbers is that of the whole row")


class _Use(NamedTuple):
    """What is taken of a row: the expression that goes, the attribute that takes its place, and the value of that."""

    expr: forms.Expr
    name: str
    value: str
    is_array: bool = False


def columns_taken_out(project: Project, lookup: Lookup) -> Fix | Refused:
    """Arrays of the columns as attributes, which ``__getitem__`` indexes."""
    if lookup.scan:
        return Refused("the rows have to be grouped once, and by what is for the author to say")
    method = lookup.link.scope
    owner = method.owner
    if owner is None or method.name != "__getitem__" or len(method.function.params) != 2:
        return Refused("it is looked up outside of `__getitem__`")
    init = owner.functions.get("__init__")
    if init is None or not init.body or not init.function.params:
        return Refused(f"`{owner.name}` has no `__init__` of its own")
    return _Plan(project, lookup, method, owner, init).fix()


class _Plan:
    def __init__(self, project: Project, lookup: Lookup, method: Scope, owner: Scope, init: Scope) -> None:
        self.project, self.lookup = project, lookup
        self.method, self.owner, self.init = method, owner, init
        self.module: Module = owner.module
        self.own = method.function.params[0].name
        self.parents: dict[int, forms.Expr] = {}
        self.at: dict[int, forms.Expr] = {}
        for link in links_of(method):
            for root in expressions(link.stmt):
                for expr in descend(root):
                    self.at[expr.at] = expr
                    self.parents.update((child.at, expr) for child in children(expr))

    def text(self, expr: forms.Expr) -> str:
        start, end = self.module.facts.span(expr.at)
        return self.module.source.text[start:end]

    # -- the whole

    def fix(self) -> Fix | Refused:
        row = self.at.get(self.lookup.at)
        if not isinstance(row, forms.Sub) or not isinstance(row.value, forms.Attr):
            return Refused("it is not clear what is looked up")
        if row.value.name != "iloc":
            return Refused("`.loc` looks for a label, which need not be the position")
        number, column = row.index, None
        if isinstance(number, forms.Sequence):
            if number.kind != "tuple" or len(number.items) != 2:
                return Refused("several rows are taken at once")
            number, column = number.items
        if not self._is_number(number):
            return Refused(f"`{self.text(number)}` may be several rows at once")
        uses = self._uses(row, number, column)
        if isinstance(uses, Refused):
            return uses
        if not all(self._is_always_taken(expr) for expr in (row, *(use.expr for use in uses))):
            return Refused("it is taken in some cases only: in others the table may not have that column")
        reason = self._obstacle(row.value.value)
        return Refused(reason) if reason else self._edited(row, uses, self.text(number))

    def _edited(self, row: forms.Sub, uses: list[_Use], number: str) -> Fix | Refused:
        source, facts = self.module.source, self.module.facts
        names: dict[str, str] = {}
        edits: list[Edit | Refused] = []
        for use in uses:
            if "#" in use.value or "\n" in use.value:
                return Refused(f"`{use.value}` stands on several lines")
            name = names.setdefault(use.value, self._free(use, set(names.values())))
            parent = self.parents.get(use.expr.at)
            copied = isinstance(parent, forms.Call) and dotted(parent.func) == "torch.tensor"
            copy = ".copy()" if use.is_array and not copied else ""
            edits.append(Edit(source.place(*facts.span(use.expr.at)), f"{self.own}.{name}[{number}]{copy}"))
        if self.lookup.at not in {use.expr.at for use in uses} and self._row_name(row):
            edits.append(mending.remove_statement(source, facts, self.lookup.link))
        lines = [line for value, name in names.items() if not self._is_said(line := f"{self.own}.{name} = {value}")]
        if lines:
            edits.append(moving.insert_below(source, facts, self.init.body[-1], lines))
        what = "the columns" if len(names) > 1 or any(use.is_array for use in uses) else "the column"
        return make_fix("unsafe", f"Take {what} out once, in `__init__`", edits)

    def _free(self, use: _Use, taken: set[str]) -> str:
        """The attribute's name, with a number where the file has that name for something else."""
        number, name = 1, use.name
        while name in taken or (
            re.search(rf"\b{name}\b", self.module.source.text) and not self._is_said(f"{self.own}.{name} = {use.value}")
        ):
            number += 1
            name = f"{use.name}_{number}"
        return name

    def _is_said(self, line: str) -> bool:
        """Whether ``__init__`` has a line already, for another finding."""
        start, end = self.module.facts.span(self.init.function.at)
        return line in (said.strip() for said in self.module.source.text[start:end].splitlines())

    # -- what stands in the way

    def _obstacle(self, table: forms.Expr) -> str:
        """Why the table in ``__init__`` may not be that of a sample, if anything says so."""
        if self.init.function.params[0].name != self.own or self.init.returns or "__slots__" in self.owner.names:
            return "`__init__` is written in an unusual way"
        start, end = self.module.facts.span(self.init.function.at)
        if f"{self.own}[" in self.module.source.text[start:end]:
            return "`__init__` takes samples already"
        name = self._attribute(table)
        return self._unsettled(name) or self._changed(name)

    def _attribute(self, table: forms.Expr) -> str:
        """``df`` of ``self.df`` and of ``self.df["x"]``."""
        held = dotted(table.value if isinstance(table, forms.Sub) else table) or ""
        first, _, rest = held.partition(".")
        return rest if first == self.own and "." not in rest else ""

    def _unsettled(self, name: str) -> str:
        """Why an attribute may have another value than at the end of ``__init__``."""
        if not name:
            return "it is no attribute of the dataset that is looked up"
        family = {self.owner, *self.project.subclasses(self.owner), *self.project.lineage(self.owner)}
        settled = False
        for module in self.project.loaded():
            for store in module.stores:
                if store.target.name != name:
                    continue
                scope = store.link.scope
                params = scope.function.params
                own = scope.owner is not None and bool(params) and dotted(store.target.value) == params[0].name
                if scope is self.init and own:
                    settled = settled or store.link.parent is None
                elif not own or scope.owner in family:
                    return f"`{name}` is assigned elsewhere, too"
        return "" if settled else f"`{self.own}.{name}` is not always set in `__init__`"

    def _changed(self, name: str) -> str:
        """Why a table may be changed in place after ``__init__``."""
        held = f"{self.own}.{name}"
        for method in self.owner.functions.values():
            for link in links_of(method) if method is not self.init else ():
                stmt = link.stmt
                targets = stmt.targets if isinstance(stmt, (forms.Assign, forms.Delete)) else ()
                if isinstance(stmt, (forms.AugAssign, forms.Declare)):
                    targets = (stmt.target,)
                if any(dotted(part) == held for target in targets for part in descend(target)):
                    return f"`{method.name}` changes the table"
                for root in expressions(stmt):
                    for call in descend(root):
                        if isinstance(call, forms.Call) and any(arg.name == "inplace" for arg in call.args):
                            return f"`{method.name}` changes the table"
        return ""

    def _is_number(self, expr: forms.Expr, seen: tuple[str, ...] = ()) -> bool:
        """Whether an index is one position, not a slice or a list of them."""
        if isinstance(expr, forms.Const):
            return isinstance(expr.value, int)
        if isinstance(expr, forms.Binary):
            sides = (side for side in (expr.left, expr.right) if not isinstance(side, forms.Attr))  # ``i * self.n``
            return all(self._is_number(side, seen) for side in sides)
        if isinstance(expr, forms.Call):
            return last_name(expr.func) in ("int", "item", "len", "tolist")
        if not isinstance(expr, forms.Name) or expr.id in seen:
            return isinstance(expr, forms.Name)
        param = expr.id == self.method.function.params[1].name
        bound = [link for link in links_of(self.method) if expr.id in link.changes and not link.blocks]
        return (param or bool(bound)) and all(
            isinstance(link.stmt, forms.Assign) and self._is_number(link.stmt.value, (*seen, expr.id)) for link in bound
        )

    def _is_always_taken(self, expr: forms.Expr) -> bool:
        """Whether every call of ``__getitem__`` evaluates an expression, unless it fails."""
        link = self.project.link_at(self.module, expr.at)
        start = self.module.facts.span(link.stmt.at)[0]
        inner: forms.Expr | None = expr
        while inner is not None:
            if isinstance(inner, (forms.IfExp, forms.Bool, forms.Comp, forms.Lambda)):
                return False
            inner = self.parents.get(inner.at)
        leaves = any(self.module.facts.span(one.stmt.at)[0] < start for one in self.method.returns if one is not link)
        return not leaves and all(isinstance(outer.stmt, forms.With) for outer in link.outer())

    # -- what is taken of a row

    def _uses(self, row: forms.Sub, number: forms.Expr, column: forms.Expr | None) -> list[_Use] | Refused:
        assert isinstance(row.value, forms.Attr)
        table = row.value.value
        name, held = self._attribute(table), self.text(table)
        if isinstance(table, forms.Sub):
            if column is not None or not _is_text(table.index):
                return Refused("it is not clear which column is taken")
            return [_Use(row, _called(table.index), f"{held}.to_numpy()")]
        if column is not None:
            if isinstance(column, forms.Const) and isinstance(column.value, int):
                return [_Use(row, f"{name}_column_{column.value}", f"{held}.iloc[:, {column.value}].to_numpy()")]
            if isinstance(column, forms.Slice) and all(
                part is None or self._is_literal(part) for part in (column.lower, column.upper, column.step)
            ):
                return self._one(self._array(row, f"{held}.iloc[:, {self._slice(row, number)}]", name))
            return Refused("it is not clear which column is taken")
        if self.lookup.kind == COLUMN:
            return [_Use(row, f"{name}_column", f"{held}.to_numpy()")]
        whole = self.parents.get(row.at)
        if isinstance(whole, forms.Attr) and whole.name in ("values", "to_numpy"):
            return self._one(self._array(row, held, name))
        return self._fields(row, held, name)

    def _slice(self, row: forms.Sub, number: forms.Expr) -> str:
        """``1:`` of ``df.iloc[index, 1:]``: the range of a slice ends with its last number."""
        behind = self.module.source.text[self.module.facts.span(number.at)[1] : self.module.facts.span(row.at)[1]]
        return behind.partition(",")[2].rpartition("]")[0].strip()

    def _is_literal(self, expr: forms.Expr) -> bool:
        value = expr.value if isinstance(expr, forms.Unary) else expr
        return isinstance(value, forms.Const) and isinstance(value.value, int)

    def _one(self, use: _Use | Refused) -> list[_Use] | Refused:
        return use if isinstance(use, Refused) else [use]

    def _row_name(self, row: forms.Sub) -> str:
        """``row`` of ``row = self.df.iloc[index]``."""
        stmt = self.lookup.link.stmt
        if isinstance(stmt, forms.Assign) and len(stmt.targets) == 1 and stmt.value is row:
            return stmt.targets[0].id if isinstance(stmt.targets[0], forms.Name) else ""
        return ""

    def _fields(self, row: forms.Sub, held: str, name: str) -> list[_Use] | Refused:
        """The fields of a row, each the item of a column."""
        taken = self._taken(row)
        if isinstance(taken, Refused):
            return taken
        uses: list[_Use] = []
        scalars: list[forms.Sub] = []
        for field in taken:
            if _is_text(field.index):
                scalars.append(field)
                uses.append(_Use(field, _called(field.index), f"{held}[{self.text(field.index)}].to_numpy()"))
                continue
            if not self._names_columns(field.index):
                return Refused(f"it is not clear which columns `{self.text(field)}` takes")
            use = self._array(field, f"{held}[{self.text(field.index)}]", name)
            if isinstance(use, Refused):
                return use
            uses.append(use)
        of_objects = any(self._given_to(field, _OF_PATHS) or self._is_joined(field) for field in scalars)
        if not of_objects and not all(map(self._is_typed, scalars)):
            return _NO_TYPE
        return uses

    def _taken(self, row: forms.Sub) -> list[forms.Sub] | Refused:
        parent = self.parents.get(row.at)
        if isinstance(parent, forms.Sub) and parent.value is row:
            return [parent]
        local = self._row_name(row)
        if not local:
            return Refused("the whole row is used")
        taken = []
        for expr in sorted(self.at.values(), key=lambda expr: self.module.facts.span(expr.at)):
            if isinstance(expr, forms.Name) and expr.id == local:
                outer = self.parents.get(expr.at)
                if isinstance(outer, forms.Sub) and outer.value is expr:
                    taken.append(outer)
        start, end = self.module.facts.span(self.method.function.at)
        said = len(re.findall(rf"\b{re.escape(local)}\b", self.module.source.text[start:end]))
        if said != len(taken) + 1 or not taken:
            return Refused(f"`{local}` is used as a whole")
        if self._is_counted_on(row):
            return Refused("the index changes afterwards")
        return taken

    def _is_counted_on(self, row: forms.Sub) -> bool:
        """Whether the index gets another value behind the statement that takes the row."""
        names = {part.id for part in descend(row.index) if isinstance(part, forms.Name)}
        facts, link = self.module.facts, self.lookup.link
        end = facts.span(link.stmt.at)[1]
        around = set(map(id, link.outer()))
        return any(
            names & other.changes and (facts.span(other.stmt.at)[0] >= end or id(other) in around)
            for other in links_of(self.method)
        )

    def _given_to(self, expr: forms.Expr, names: frozenset[str]) -> bool:
        parent = self.parents.get(expr.at)
        return isinstance(parent, forms.Call) and parent.func is not expr and last_name(parent.func) in names

    def _is_typed(self, expr: forms.Expr) -> bool:
        """Whether a number gets a type where it is used: ``int(row["label"])``, ``torch.tensor(x, dtype=...)``."""
        outer = self.parents.get(expr.at)
        if isinstance(outer, forms.Call) and outer.func is not expr:
            typed = last_name(outer.func) == "tensor" and any(arg.name == "dtype" for arg in outer.args)
            return typed or last_name(outer.func) in _NUMBERS
        if outer is not None or isinstance(expr, forms.Name):
            return False
        link = self.project.link_at(self.module, expr.at)
        stmt = link.stmt
        target = stmt.targets[0] if isinstance(stmt, forms.Assign) and len(stmt.targets) == 1 else None
        return isinstance(target, forms.Name) and self._is_typed_later(link, target.id)

    def _is_typed_later(self, link: Link, name: str) -> bool:
        """Whether what a name is given is only used where it gets a type."""
        end = self.module.facts.span(link.stmt.at)[1]
        uses = sorted(
            (self.module.facts.span(one.at)[0], one)
            for one in self.at.values()
            if isinstance(one, forms.Name) and one.id == name
        )
        for start, one in uses:
            other = self.project.link_at(self.module, one.at)
            rebinds = isinstance(other.stmt, forms.Assign) and dotted(other.stmt.targets[0]) == name
            if start < end and other is not link:
                return False
            if start < end or isinstance(other.stmt, forms.Assign) and other.stmt.targets[0] is one:
                continue
            if not self._is_typed(one):
                return False
            if rebinds and other.block is link.block:
                return True
        return sum(name in other.changes for other in links_of(self.method)) == 1

    def _is_joined(self, expr: forms.Expr) -> bool:
        """``row["name"] + ".png"``: a text."""
        outer = self.parents.get(expr.at)
        return isinstance(outer, forms.Binary) and outer.op == "+" and (_is_text(outer.left) or _is_text(outer.right))

    def _names_columns(self, index: forms.Expr) -> bool:
        """Whether an index is a list of columns that ``__init__`` knows as well."""
        if isinstance(index, forms.Sequence):
            return index.kind == "list" and all(map(_is_text, index.items))
        if isinstance(index, forms.Name):
            return self._is_global(index.id)
        name = dotted(index) or ""
        return name.count(".") == 1 and name.startswith(f"{self.own}.") and not self._unsettled(name.partition(".")[2])

    def _is_global(self, name: str) -> bool:
        scopes = (self.init, self.method)
        params = {param.name for scope in scopes for param in scope.function.params}
        return name in self.module.scope.names and name not in params | self.init.names | self.method.names

    def _array(self, selected: forms.Expr, value: str, name: str) -> _Use | Refused:
        """Several columns up to the call that gives them a type: ``row[columns].to_numpy("float32")``."""
        node, is_array, typed = selected, False, False
        while not (is_array and typed):
            step = self._converted(node, is_array)
            if step is None and is_array and self._is_typed(node):
                break
            if step is None:
                return _NO_TYPE
            node, is_array, typed = step[0], step[1], typed or step[2]
        facts = self.module.facts
        (start, end), (first, last) = facts.span(node.at), facts.span(selected.at)
        whole = mending.substituted(self.module.source.text, start, end, [(first, last, value)])
        return _Use(node, f"{name}_values", whole, is_array=True)

    def _converted(self, node: forms.Expr, is_array: bool) -> tuple[forms.Expr, bool, bool] | None:
        """The next conversion around an expression: what it gives, whether that is an array, and has a type."""
        outer = self.parents.get(node.at)
        if isinstance(outer, forms.Attr) and outer.name == "values" and not is_array:
            return outer, True, False
        call = self.parents.get(outer.at) if isinstance(outer, forms.Attr) else outer
        if not isinstance(call, forms.Call) or any(arg.star for arg in call.args):
            return None
        if isinstance(outer, forms.Attr) and call.func is outer:
            given = call.args
            if outer.name == "to_numpy" and not is_array and not given:
                return call, True, False
            if outer.name not in ("to_numpy", "astype") or len(given) != 1 or given[0].name not in (None, "dtype"):
                return None
            return (call, is_array or outer.name == "to_numpy", True) if self._is_type(given[0].value) else None
        if last_name(call.func) in _ARRAYS and len(call.args) == 2 and call.args[0].value is node:
            root = (dotted(call.func) or "").partition(".")[0]
            typed = call.args[1].name == "dtype" and self._is_type(call.args[1].value)
            return (call, True, True) if typed and self._is_global(root) else None
        return None

    def _is_type(self, expr: forms.Expr) -> bool:
        name = dotted(expr) or ""
        return _is_text(expr) or name in _NUMBERS or bool(name) and self._is_global(name.partition(".")[0])


def _is_text(expr: forms.Expr) -> bool:
    return isinstance(expr, forms.Const) and isinstance(expr.value, str)


def _called(column: forms.Expr) -> str:
    """The attribute of a column: ``label_column`` of ``"label"``."""
    assert isinstance(column, forms.Const)
    plain = re.sub(r"\W+", "_", str(column.value)).strip("_")
    return f"{plain if plain[:1].isalpha() else f'x{plain}'}_column"
