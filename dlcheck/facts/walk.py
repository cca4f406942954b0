"""libcst's tree -> ModuleFacts, in one hand-written walk.

No metadata providers, matchers or visitors: each costs several times the parse.  Positions come
from one codegen pass that notes where the wanted nodes begin and end.
"""

from __future__ import annotations

import ast
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, NamedTuple

import libcst as cst
from libcst._nodes.internal import CodegenState

from dlcheck.facts import Unreadable, forms
from dlcheck.facts.forms import Block, Expr, ModuleFacts, Stmt


def walk(text: str) -> ModuleFacts:
    """The facts of a module's text; raises Unreadable where libcst cannot parse it."""
    with _parsed(text) as module:
        walker = _Walker()
        body = walker.block(module.body)
        return ModuleFacts(body, _spans(module, walker, text))


class Piece(NamedTuple):
    """A line of a module, or of a class of it: a statement, or several with semicolons between them.

    Its nodes have numbers from ``low`` to ``high``, with room for more; ``first`` begins it.  ``statements`` is how
    many it gives; ``inside``: of a class; ``opens``: it is the head of a class whose lines follow.
    """

    first: int
    low: int
    high: int
    statements: int
    inside: bool
    opens: bool


CLASS = "class _:\n"


def walk_in_pieces(text: str, base: int | None = None) -> tuple[ModuleFacts, list[Piece]]:
    """The same facts, with free numbers after each piece.

    Those of a part of a text are numbered from ``base``, one after the other; so are their spans.
    """
    with _parsed(text) as module:
        walker = _Walker(base or 0, spacious=base is None)
        body = walker.lines(module.body)
        return ModuleFacts(body, _spans(module, walker, text)), walker.pieces


def walk_in_class(text: str, base: int) -> tuple[ModuleFacts, list[Piece], int] | None:
    """The same of lines of a class, which ``CLASS`` is put before, and where the class would end.

    Spans do not count ``CLASS``.  None where the lines are anything else.
    """
    with _parsed(text) as module:
        (only, *others) = module.body
        if others or not isinstance(only, cst.ClassDef) or not isinstance(only.body, cst.IndentedBlock):
            return None
        walker = _Walker(base)
        body = walker.lines(only.body.body, inside=True)
        walker.number(only)
        *spans, _, end = shifted(_spans(module, walker, text), -len(CLASS))
        return ModuleFacts(body, tuple(spans)), walker.pieces, end


def shifted(spans: Iterable[int], by: int) -> Iterator[int]:
    """Spans further on in a text; that of a node without a place, which ends at 0, stays."""
    each = iter(spans)
    for start, end in zip(each, each, strict=True):
        yield from (start + by, end + by) if end else (start, end)


@contextmanager
def _parsed(text: str) -> Iterator[cst.Module]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 4000))  # long chains of elif recurse in libcst's codegen
    try:
        yield cst.parse_module(text)
    except cst.ParserSyntaxError as error:
        raise Unreadable(error.raw_line, error.raw_column + 1, error.message) from None
    except (RecursionError, cst.CSTValidationError, UnicodeError, ValueError) as error:
        raise Unreadable(1, 1, f"cannot be parsed: {error}") from None
    finally:
        sys.setrecursionlimit(limit)


class _Marks(CodegenState):
    """Generates the code again and notes, for wanted nodes, the tokens at which they begin and end."""

    __slots__ = ("marks", "wanted")

    marks: list[int]
    wanted: dict[int, int]

    def record_syntactic_position(self, node: Any, *, start_node: Any = None, end_node: Any = None) -> Any:
        index = self.wanted.get(id(node))
        return _NOTHING if index is None else _Mark(self, index)


class _Mark:
    __slots__ = ("index", "state")

    def __init__(self, state: _Marks, index: int) -> None:
        self.state = state
        self.index = index

    def __enter__(self) -> None:
        self.state.marks[2 * self.index] = len(self.state.tokens)

    def __exit__(self, *_: object) -> None:
        self.state.marks[2 * self.index + 1] = len(self.state.tokens)


class _Nothing:
    __slots__ = ()

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


_NOTHING = _Nothing()


def _spans(module: cst.Module, walker: _Walker, text: str) -> tuple[int, ...]:
    """Start and end offset of each of the walker's nodes, one after the other.

    A node given as a pair of other nodes' numbers reaches from the start of the first to the end
    of the second (nodes for which libcst records no position of their own).
    """
    nodes, base = walker.nodes, walker.base
    state = _Marks(default_indent=module.default_indent, default_newline=module.default_newline)
    wanted = ((index, node) for index, node in enumerate(nodes) if node.__class__ is not tuple and node is not None)
    state.wanted = {id(node): index for index, node in wanted}
    marks = state.marks = [-1] * (2 * len(nodes))
    module._codegen(state)
    offsets = [0, *accumulate(map(len, state.tokens))]
    offsets.append(offsets[-1])  # libcst drops the final newline's token again
    spans = [offsets[mark] if mark >= 0 else 0 for mark in marks]
    made = "".join(state.tokens)
    if made != text:
        spans = _moved(spans, made, text)
    for index, pair in enumerate(nodes):
        if pair.__class__ is tuple:
            first, last = pair
            spans[2 * index] = spans[2 * (first - base)]
            spans[2 * index + 1] = spans[2 * (last - base) + 1]
    return tuple(spans)


def _moved(spans: list[int], made: str, text: str) -> list[int]:
    """Spans in what libcst generates, as spans in the text.

    libcst drops a form feed or a lone backslash before a statement, and blanks at the end of a file.
    """
    places: list[int] = []  # where each character of ``made`` stands in ``text``
    at = 0
    for character in made:
        start = at
        while at < len(text) and text[at] != character and text[at] in "\x0c\\ \t\r\n":
            at += 1
        found = at < len(text) and text[at] == character
        at = at if found else start
        places.append(at)
        at += found
    places.append(at)
    starts = (places[start] for start in spans[::2])
    ends = (places[end - 1] + 1 if end else 0 for end in spans[1::2])
    return [offset for pair in zip(starts, ends, strict=True) for offset in pair]


_OPERATORS: dict[type[cst.CSTNode], str] = {
    cst.Add: "+", cst.Subtract: "-", cst.Multiply: "*", cst.Divide: "/", cst.FloorDivide: "//", cst.Modulo: "%",
    cst.Power: "**", cst.LeftShift: "<<", cst.RightShift: ">>", cst.BitOr: "|", cst.BitAnd: "&", cst.BitXor: "^",
    cst.MatrixMultiply: "@", cst.Plus: "+", cst.Minus: "-", cst.BitInvert: "~", cst.Not: "not", cst.And: "and",
    cst.Or: "or", cst.LessThan: "<", cst.GreaterThan: ">", cst.Equal: "==", cst.LessThanEqual: "<=",
    cst.GreaterThanEqual: ">=", cst.NotEqual: "!=", cst.In: "in", cst.NotIn: "not in", cst.Is: "is",
    cst.IsNot: "is not", cst.AddAssign: "+", cst.SubtractAssign: "-", cst.MultiplyAssign: "*",
    cst.MatrixMultiplyAssign: "@", cst.DivideAssign: "/", cst.ModuloAssign: "%", cst.BitAndAssign: "&",
    cst.BitOrAssign: "|", cst.BitXorAssign: "^", cst.LeftShiftAssign: "<<", cst.RightShiftAssign: ">>",
    cst.PowerAssign: "**", cst.FloorDivideAssign: "//",
}  # fmt: skip

_CONSTANT_NAMES: dict[str, object] = {"None": None, "True": True, "False": False}


class _Walker:
    """Turns nodes into forms and numbers them; ``nodes`` holds each numbered node."""

    def __init__(self, base: int = 0, spacious: bool = False) -> None:
        self.base = base
        self.spacious = spacious
        self.nodes: list[Any] = []
        self.pieces: list[Piece] = []
        self._yields = False

    def number(self, node: object) -> int:
        self.nodes.append(node)
        return self.base + len(self.nodes) - 1

    # -- statements

    def lines(self, body: Iterable[Any], inside: bool = False) -> Block:
        """A block as ``block`` gives it, of which each line is a piece."""
        out: list[Stmt] = []
        for line in body:
            low, count = self.base + len(self.nodes), len(out)
            first = self._beginning(line)
            opens = not inside and isinstance(line, cst.ClassDef) and isinstance(line.body, cst.IndentedBlock)
            if opens:
                self.pieces.append(Piece(first, low, low, 1, False, True))
                out.append(self._class(line, in_lines=True))
            else:
                self._line(line, out)
                high = self._room(low)
                self.pieces.append(Piece(first, low, high, len(out) - count, inside, False))
        return tuple(out)

    def _beginning(self, line: Any) -> int:
        """The number of the node that a line begins with: its own comes next where it has one."""
        if getattr(line, "decorators", ()):
            return self.number(line.decorators[0])
        return self.base + len(self.nodes) if line.__class__ in _COMPOUND else self.number(line)

    def _room(self, low: int) -> int:
        """Leave numbers free, so that a piece can grow and those after it keep theirs."""
        used = self.base + len(self.nodes) - low
        self.nodes += [None] * (used // 2 + 40 if self.spacious else 0)
        return self.base + len(self.nodes)

    def block(self, body: Iterable[Any]) -> Block:
        out: list[Stmt] = []
        for line in body:
            self._line(line, out)
        return tuple(out)

    def _line(self, line: Any, out: list[Stmt]) -> None:
        if isinstance(line, cst.SimpleStatementLine):
            for small in line.body:
                self._small(small, out)
        else:
            self._compound(line, out)

    def _suite(self, suite: Any) -> Block:
        if isinstance(suite, cst.IndentedBlock):
            return self.block(suite.body)
        out: list[Stmt] = []
        for small in suite.body:
            self._small(small, out)
        return tuple(out)

    def _else(self, node: Any) -> Block:
        if node is None:
            return ()
        if isinstance(node, cst.If):
            out: list[Stmt] = []
            self._compound(node, out)
            return tuple(out)
        return self._suite(node.body)

    def _small(self, node: Any, out: list[Stmt]) -> None:
        make = _SMALL.get(node.__class__)
        if make is not None:
            out.append(make(self, node))

    def _compound(self, node: Any, out: list[Stmt]) -> None:
        make = _COMPOUND.get(node.__class__)
        if make is not None:
            out.append(make(self, node))

    def _head(self, start: int, last: int) -> int:
        return self.number((start, last))

    def _if(self, node: cst.If) -> Stmt:
        at = self.number(node)
        test = self.expr(node.test)
        head = self._head(at, test.at)
        return forms.If(test, self._suite(node.body), self._else(node.orelse), at, head)

    def _for(self, node: cst.For) -> Stmt:
        at = self.number(node)
        target, source = self.expr(node.target), self.expr(node.iter)
        head = self._head(at, source.at)
        return forms.For(target, source, self._suite(node.body), self._else(node.orelse), at, head)

    def _while(self, node: cst.While) -> Stmt:
        at = self.number(node)
        test = self.expr(node.test)
        head = self._head(at, test.at)
        return forms.While(test, self._suite(node.body), self._else(node.orelse), at, head)

    def _with(self, node: cst.With) -> Stmt:
        at = self.number(node)
        items = []
        for item in node.items:
            value = self.expr(item.item)
            target = self.expr(item.asname.name) if item.asname else None
            items.append(forms.WithItem(value, target, self.number((value.at, (target or value).at))))
        head = self._head(at, items[-1].at)
        return forms.With(tuple(items), self._suite(node.body), at, head)

    def _try(self, node: cst.Try | cst.TryStar) -> Stmt:
        at = self.number(node)
        body = self._suite(node.body)
        handlers = []
        for handler in node.handlers:
            kind = self.expr(handler.type) if handler.type else None
            bound = handler.name.name if handler.name else None
            name = _identifier(bound.value) if isinstance(bound, cst.Name) else None
            handlers.append(forms.Handler(kind, name, self._suite(handler.body), self.number(handler)))
        orelse = self._else(node.orelse)
        final = self._suite(node.finalbody.body) if node.finalbody else ()
        return forms.Try(body, tuple(handlers), orelse, final, at, at)

    def _match(self, node: cst.Match) -> Stmt:
        at = self.number(node)
        subject = self.expr(node.subject)
        cases = []
        for case in node.cases:
            guard = self.expr(case.guard) if case.guard else None
            names = tuple(sorted(set(_pattern_names(case.pattern))))
            cases.append(forms.Case(names, guard, self._suite(case.body), self.number(case)))
        return forms.Match(subject, tuple(cases), at, self._head(at, subject.at))

    def _function(self, node: cst.FunctionDef) -> Stmt:
        at, name_at = self.number(node), self.number(node.name)
        decorators = tuple(self.expr(decorator.decorator) for decorator in node.decorators)
        params = self._params(node.params)
        head = self._head(at, _end_of(params[-1]) if params else name_at)
        outer, self._yields = self._yields, False
        body = self._suite(node.body)
        is_generator, self._yields = self._yields, outer
        is_async = node.asynchronous is not None
        name = _identifier(node.name.value)
        return forms.Function(name, params, body, decorators, is_async, is_generator, at, head, name_at)

    def _class(self, node: cst.ClassDef, in_lines: bool = False) -> Stmt:
        at, name_at = self.number(node), self.number(node.name)
        decorators = tuple(self.expr(decorator.decorator) for decorator in node.decorators)
        bases = self._args((*node.bases, *node.keywords))
        head = self._head(at, bases[-1].at if bases else name_at)
        body = self._class_lines(node.body.body) if in_lines else self._suite(node.body)
        return forms.Class(_identifier(node.name.value), bases, body, decorators, at, head, name_at)

    def _class_lines(self, body: Iterable[Any]) -> Block:
        head = self.pieces[-1]
        self.pieces[-1] = head._replace(high=self._room(head.low))
        return self.lines(body, inside=True)

    def _params(self, node: cst.Parameters) -> tuple[forms.Param, ...]:
        out: list[forms.Param] = []

        def add(param: cst.Param, kind: str) -> None:
            default = self.expr(param.default) if param.default else None
            annotation = self.expr(param.annotation.annotation) if param.annotation else None
            out.append(forms.Param(_identifier(param.name.value), kind, default, annotation, self.number(param)))

        for param in node.posonly_params:
            add(param, "positional")
        for param in node.params:
            add(param, "normal")
        if isinstance(node.star_arg, cst.Param):
            add(node.star_arg, "*")
        for param in node.kwonly_params:
            add(param, "keyword")
        if node.star_kwarg:
            add(node.star_kwarg, "**")
        return tuple(out)

    def _assign(self, node: cst.Assign) -> Stmt:
        at = self.number(node)
        targets = tuple(self.expr(target.target) for target in node.targets)
        return forms.Assign(targets, self.expr(node.value), at)

    def _ann_assign(self, node: cst.AnnAssign) -> Stmt:
        at = self.number(node)
        target, annotation = self.expr(node.target), self.expr(node.annotation.annotation)
        return forms.Declare(target, annotation, self.expr(node.value) if node.value else None, at)

    def _aug_assign(self, node: cst.AugAssign) -> Stmt:
        at = self.number(node)
        op = _OPERATORS.get(node.operator.__class__, "?")
        return forms.AugAssign(self.expr(node.target), op, self.expr(node.value), at)

    def _do(self, node: cst.Expr) -> Stmt:
        at = self.number(node)
        return forms.Do(self.expr(node.value), at)

    def _return(self, node: cst.Return) -> Stmt:
        at = self.number(node)
        return forms.Return(self.expr(node.value) if node.value else None, at)

    def _raise(self, node: cst.Raise) -> Stmt:
        at = self.number(node)
        return forms.Raise(self.expr(node.exc) if node.exc else None, at)

    def _delete(self, node: cst.Del) -> Stmt:
        at = self.number(node)
        if isinstance(node.target, (cst.Tuple, cst.List)):
            return forms.Delete(tuple(self._element(element) for element in node.target.elements), at)
        return forms.Delete((self.expr(node.target),), at)

    def _assert(self, node: cst.Assert) -> Stmt:
        at = self.number(node)
        return forms.Assert(self.expr(node.test), at)

    def _jump(self, node: cst.CSTNode) -> Stmt:
        return forms.Jump(node.__class__.__name__.lower(), self.number(node))

    def _scope(self, node: cst.Global | cst.Nonlocal) -> Stmt:
        names = tuple(_identifier(item.name.value) for item in node.names)
        return forms.Scope(node.__class__.__name__.lower(), names, self.number(node))

    def _import(self, node: Any) -> Stmt:
        at = self.number(node)
        return forms.Import(tuple(self._alias(alias) for alias in node.names), at)

    def _import_from(self, node: Any) -> Stmt:
        at = self.number(node)
        module = _dotted(node.module) if node.module else ""
        names = node.names
        aliases = () if isinstance(names, cst.ImportStar) else tuple(self._alias(alias, whole=True) for alias in names)
        return forms.ImportFrom(module, len(node.relative), aliases, at)

    def _alias(self, alias: cst.ImportAlias, whole: bool = False) -> forms.Alias:
        name = _dotted(alias.name)
        if alias.asname and isinstance(alias.asname.name, cst.Name):
            bound = _identifier(alias.asname.name.value)
        else:
            bound = name if whole else name.partition(".")[0]
        return forms.Alias(name, bound, self.number(alias))

    # -- expressions

    def expr(self, node: Any) -> Expr:
        make = _EXPRESSIONS.get(node.__class__)
        return make(self, node) if make is not None else forms.Other((), self.number(node))

    def _name(self, node: cst.Name) -> Expr:
        at = self.number(node)
        if node.value in _CONSTANT_NAMES:
            return forms.Const(_CONSTANT_NAMES[node.value], at)
        return forms.Name(_identifier(node.value), at)

    def _attribute(self, node: cst.Attribute) -> Expr:
        # A chain of attributes nests to the left: go down by hand, not by recursion.
        chain = [node]
        while isinstance(chain[-1].value, cst.Attribute):
            chain.append(chain[-1].value)
        value = self.expr(chain[-1].value)
        for link in reversed(chain):
            value = forms.Attr(value, _identifier(link.attr.value), self.number(link), self.number(link.attr))
        return value

    def _literal(self, node: Any) -> Expr:
        at = self.number(node)
        try:
            return forms.Const(node.evaluated_value, at)
        except (ValueError, SyntaxError):
            return forms.Other((), at)

    def _ellipsis(self, node: cst.Ellipsis) -> Expr:
        return forms.Const(..., self.number(node))

    def _string(self, node: Any) -> Expr:
        """A string literal, or several side by side: a constant, or the texts and values of an f-string."""
        at = self.number(node)
        literals = list(_literals(node))
        if all(isinstance(literal, cst.SimpleString) for literal in literals):
            values = [ast.literal_eval(literal.value) for literal in literals]
            return forms.Const(values[0][:0].join(values), at)
        parts: list[Expr] = []
        text = ""
        for part in _parts(literals):
            if isinstance(part, str):
                text += part
                continue
            if text:
                parts.append(forms.Const(text, self.number((at, at))))
                text = ""
            parts.append(self.expr(part))
        if text:
            parts.append(forms.Const(text, self.number((at, at))))
        return forms.FString(tuple(parts), at)

    def _call(self, node: cst.Call) -> Expr:
        at = self.number(node)
        return forms.Call(self.expr(node.func), self._args(node.args), at)

    def _args(self, args: Sequence[cst.Arg]) -> tuple[forms.Arg, ...]:
        return tuple(self._arg(arg) for arg in args)

    def _arg(self, arg: cst.Arg) -> forms.Arg:
        name = _identifier(arg.keyword.value) if arg.keyword else None
        return forms.Arg(name, arg.star, self.expr(arg.value), self.number(arg))

    def _subscript(self, node: cst.Subscript) -> Expr:
        at = self.number(node)
        value = self.expr(node.value)
        first, *others = node.slice
        starred = isinstance(first.slice, cst.Index) and first.slice.star
        if not others and not starred and not isinstance(first.comma, cst.Comma):
            return forms.Sub(value, self._index(first.slice), at)
        pair = self.number(None)
        indices = tuple(self._index(element.slice) for element in node.slice)
        self.nodes[pair - self.base] = (indices[0].at, indices[-1].at)
        return forms.Sub(value, forms.Sequence("tuple", indices, pair), at)

    def _index(self, node: Any) -> Expr:
        if isinstance(node, cst.Index):
            value = self.expr(node.value)
            return forms.Star(value, self.number((value.at, value.at))) if node.star else value
        bounds = (node.lower, node.upper, node.step)
        lower, upper, step = (self.expr(bound) if bound else None for bound in bounds)
        given = [bound.at for bound in (lower, upper, step) if bound is not None]
        # Of ``[:]`` no part has a place.
        at = self.number((given[0], given[-1]) if given else node)
        return forms.Slice(lower, upper, step, at)

    def _sequence(self, node: Any) -> Expr:
        at = self.number(node)
        items = tuple(self._element(element) for element in node.elements)
        return forms.Sequence(node.__class__.__name__.lower(), items, at)

    def _element(self, node: Any) -> Expr:
        if isinstance(node, cst.StarredElement):
            value = self.expr(node.value)
            return forms.Star(value, self.number(node))
        return self.expr(node.value)

    def _dict(self, node: cst.Dict) -> Expr:
        at = self.number(node)
        entries = []
        for element in node.elements:
            value = self.expr(element.value)
            if isinstance(element, cst.DictElement):
                key = self.expr(element.key)
                entries.append(forms.Entry(key, value, self.number((key.at, value.at))))
            else:
                entries.append(forms.Entry(None, value, self.number((value.at, value.at))))
        return forms.Dict(tuple(entries), at)

    def _binary(self, node: cst.BinaryOperation) -> Expr:
        at = self.number(node)
        op = _OPERATORS.get(node.operator.__class__, "?")
        return forms.Binary(op, self.expr(node.left), self.expr(node.right), at)

    def _unary(self, node: cst.UnaryOperation) -> Expr:
        at = self.number(node)
        return forms.Unary(_OPERATORS.get(node.operator.__class__, "?"), self.expr(node.expression), at)

    def _bool(self, node: cst.BooleanOperation) -> Expr:
        at = self.number(node)
        op = _OPERATORS.get(node.operator.__class__, "?")
        return forms.Bool(op, self.expr(node.left), self.expr(node.right), at)

    def _compare(self, node: cst.Comparison) -> Expr:
        at = self.number(node)
        ops = tuple(_OPERATORS.get(target.operator.__class__, "?") for target in node.comparisons)
        rights = tuple(self.expr(target.comparator) for target in node.comparisons)
        return forms.Compare(self.expr(node.left), ops, rights, at)

    def _if_exp(self, node: cst.IfExp) -> Expr:
        at = self.number(node)
        return forms.IfExp(self.expr(node.test), self.expr(node.body), self.expr(node.orelse), at)

    def _comp(self, node: Any) -> Expr:
        at = self.number(node)
        clauses = []
        link: cst.CompFor | None = node.for_in
        while link is not None:
            target, source = self.expr(link.target), self.expr(link.iter)
            ifs = tuple(self.expr(condition.test) for condition in link.ifs)
            at_clause = self.number((target.at, ifs[-1].at if ifs else source.at))
            clauses.append(forms.Clause(target, source, ifs, at_clause))
            link = link.inner_for_in
        kind = _COMPREHENSIONS[node.__class__]
        if isinstance(node, cst.DictComp):
            key: Expr | None = self.expr(node.key)
            value = self.expr(node.value)
        else:
            key, value = None, self.expr(getattr(node, "elt", None) or node.value)
        return forms.Comp(kind, key, value, tuple(clauses), at)

    def _lambda(self, node: cst.Lambda) -> Expr:
        at = self.number(node)
        outer = self._yields
        params, body = self._params(node.params), self.expr(node.body)
        self._yields = outer
        return forms.Lambda(params, body, at)

    def _walrus(self, node: cst.NamedExpr) -> Expr:
        at = self.number(node)
        return forms.Walrus(self.expr(node.target), self.expr(node.value), at)

    def _await(self, node: cst.Await) -> Expr:
        at = self.number(node)
        return forms.Await(self.expr(node.expression), at)

    def _yield(self, node: cst.Yield) -> Expr:
        at = self.number(node)
        self._yields = True
        if isinstance(node.value, cst.From):
            return forms.Yield(self.expr(node.value.item), True, at)
        return forms.Yield(self.expr(node.value) if node.value else None, False, at)

    def _starred(self, node: cst.StarredElement) -> Expr:
        value = self.expr(node.value)
        return forms.Star(value, self.number(node))


_COMPREHENSIONS: dict[type[cst.CSTNode], str] = {
    cst.ListComp: "list",
    cst.SetComp: "set",
    cst.DictComp: "dict",
    cst.GeneratorExp: "generator",
}

_W = _Walker
_EXPRESSIONS: dict[type[cst.CSTNode], Callable[[_Walker, Any], Expr]] = {
    cst.Name: _W._name, cst.Attribute: _W._attribute, cst.Integer: _W._literal, cst.Float: _W._literal,
    cst.Imaginary: _W._literal, cst.Ellipsis: _W._ellipsis, cst.SimpleString: _W._string,
    cst.ConcatenatedString: _W._string, cst.FormattedString: _W._string, cst.Call: _W._call,
    cst.Subscript: _W._subscript, cst.Tuple: _W._sequence, cst.List: _W._sequence, cst.Set: _W._sequence,
    cst.Dict: _W._dict, cst.BinaryOperation: _W._binary, cst.UnaryOperation: _W._unary,
    cst.BooleanOperation: _W._bool, cst.Comparison: _W._compare, cst.IfExp: _W._if_exp, cst.ListComp: _W._comp,
    cst.SetComp: _W._comp, cst.DictComp: _W._comp, cst.GeneratorExp: _W._comp, cst.Lambda: _W._lambda,
    cst.NamedExpr: _W._walrus, cst.Await: _W._await, cst.Yield: _W._yield, cst.StarredElement: _W._starred,
}  # fmt: skip

_SMALL: dict[type[cst.CSTNode], Callable[[_Walker, Any], Stmt]] = {
    cst.Assign: _W._assign, cst.AnnAssign: _W._ann_assign, cst.AugAssign: _W._aug_assign, cst.Expr: _W._do,
    cst.Return: _W._return, cst.Raise: _W._raise, cst.Del: _W._delete, cst.Assert: _W._assert,
    cst.Pass: _W._jump, cst.Break: _W._jump, cst.Continue: _W._jump, cst.Global: _W._scope,
    cst.Nonlocal: _W._scope, cst.Import: _W._import, cst.ImportFrom: _W._import_from,
}  # fmt: skip

_COMPOUND: dict[type[cst.CSTNode], Callable[[_Walker, Any], Stmt]] = {
    cst.If: _W._if, cst.For: _W._for, cst.While: _W._while, cst.With: _W._with, cst.Try: _W._try,
    cst.TryStar: _W._try, cst.Match: _W._match, cst.FunctionDef: _W._function, cst.ClassDef: _W._class,
}  # fmt: skip


def _optional_nodes() -> None:
    """Node classes that older releases of libcst lack."""
    for name, make in (("LazyImport", _W._import), ("LazyImportFrom", _W._import_from)):
        if hasattr(cst, name):
            _SMALL[getattr(cst, name)] = make
    if hasattr(cst, "TemplatedString"):
        _EXPRESSIONS[cst.TemplatedString] = _W._string


_optional_nodes()


def _end_of(param: forms.Param) -> int:
    """The node at which a parameter ends."""
    last = param.default or param.annotation
    return last.at if last is not None else param.at


def _identifier(name: str) -> str:
    """A name as Python knows it, in which letters that look alike may be one."""
    return name if name.isascii() else unicodedata.normalize("NFKC", name)


def _literals(node: Any) -> Iterator[Any]:
    """The string literals that stand side by side."""
    while isinstance(node, cst.ConcatenatedString):
        yield node.left
        node = node.right
    yield node


def _parts(literals: Iterable[Any]) -> Iterator[Any]:
    """What strings side by side are made of: their texts, and the expressions in them."""
    for literal in literals:
        if isinstance(literal, cst.SimpleString):
            yield ast.literal_eval(literal.value)
            continue
        for part in literal.parts:
            expression = getattr(part, "expression", None)
            if expression is None:
                yield _text_of(literal, part.value)
                continue
            if part.equal is not None:  # f"{name=}"
                yield _as_written(part)
            yield expression


def _text_of(literal: Any, written: str) -> str:
    """The text that a part of an f-string stands for."""
    bare = written.replace("{{", "{").replace("}}", "}")
    if "\\" not in bare or "r" in literal.prefix.lower():
        return bare.replace("\r\n", "\n").replace("\r", "\n")
    quote = literal.quote
    try:
        return str(ast.literal_eval(f"{quote}{bare}{quote}"))
    except (SyntaxError, ValueError):
        return bare


def _as_written(part: Any) -> str:
    code = cst.Module([]).code_for_node
    between = (part.whitespace_before_expression, part.expression, part.whitespace_after_expression, part.equal)
    return "".join(map(code, between))


def _dotted(node: Any) -> str:
    names = []
    while isinstance(node, cst.Attribute):
        names.append(_identifier(node.attr.value))
        node = node.value
    names.append(_identifier(node.value))
    return ".".join(reversed(names))


def _pattern_names(pattern: cst.CSTNode) -> Iterable[str]:
    todo: list[cst.CSTNode] = [pattern]
    while todo:
        node = todo.pop()
        name = getattr(node, "name", None)
        if isinstance(node, (cst.MatchAs, cst.MatchStar)) and isinstance(name, cst.Name):
            yield _identifier(name.value)
        rest = getattr(node, "rest", None)
        if isinstance(rest, cst.Name):
            yield _identifier(rest.value)
        todo.extend(child for child in node.children if "Match" in child.__class__.__name__)
