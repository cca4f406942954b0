"""CPython's tree -> the same forms as libcst's tree gives, with the same numbers, in a tenth of the time.

CPython's tree does not say where a form stands to the character, and what it says differs by version: it serves to
find out what there is to report.  Whoever then asks for a place gets it from libcst, which must give the same forms
(``Differs`` where it does not).  ``walk`` is the reference: for each method here there is one of the same name there.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, TypeAlias

from dlcheck.facts import forms
from dlcheck.facts.forms import Block, Expr, Stmt

# Most of the time goes into making named tuples; this is what their constructors do, without the call around it.
_new: Any = tuple.__new__


class Unknown(Exception):
    """A kind of node that this module does not know: of a newer Python."""


def forms_of(tree: ast.Module) -> Block:
    """The forms of a module's tree; raises Unknown."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 4000))  # long chains of elif nest
    try:
        return _Walker().block(tree.body)
    finally:
        sys.setrecursionlimit(limit)


_Argument: TypeAlias = "tuple[str | None, str, Any]"  # name, star, value


class _Walker:
    def __init__(self) -> None:
        self.number = count().__next__
        self._yields = False

    # -- statements

    def block(self, body: Iterable[Any]) -> Block:
        out: list[Stmt] = []
        for node in body:
            make = _STATEMENTS.get(node.__class__)
            if make is not None:
                out.append(make(self, node))
            elif node.__class__ not in _LEFT_OUT:
                raise Unknown(node.__class__.__name__)
        return tuple(out)

    def _if(self, node: ast.If) -> Stmt:
        at = self.number()
        test = self.expr(node.test)
        head = self.number()
        return forms.If(test, self.block(node.body), self.block(node.orelse), at, head)

    def _for(self, node: ast.For | ast.AsyncFor) -> Stmt:
        at = self.number()
        target, source = self.expr(node.target), self.expr(node.iter)
        head = self.number()
        return forms.For(target, source, self.block(node.body), self.block(node.orelse), at, head)

    def _while(self, node: ast.While) -> Stmt:
        at = self.number()
        test = self.expr(node.test)
        head = self.number()
        return forms.While(test, self.block(node.body), self.block(node.orelse), at, head)

    def _with(self, node: ast.With | ast.AsyncWith) -> Stmt:
        at = self.number()
        items = []
        for item in node.items:
            value = self.expr(item.context_expr)
            target = self.expr(item.optional_vars) if item.optional_vars is not None else None
            items.append(forms.WithItem(value, target, self.number()))
        head = self.number()
        return forms.With(tuple(items), self.block(node.body), at, head)

    def _try(self, node: Any) -> Stmt:
        at = self.number()
        body = self.block(node.body)
        handlers = []
        for handler in node.handlers:
            kind = self.expr(handler.type) if handler.type is not None else None
            handlers.append(forms.Handler(kind, handler.name, self.block(handler.body), self.number()))
        orelse = self.block(node.orelse)
        return forms.Try(body, tuple(handlers), orelse, self.block(node.finalbody), at, at)

    def _match(self, node: ast.Match) -> Stmt:
        at = self.number()
        subject = self.expr(node.subject)
        cases = []
        for case in node.cases:
            guard = self.expr(case.guard) if case.guard is not None else None
            names = tuple(sorted(set(_pattern_names(case.pattern))))
            cases.append(forms.Case(names, guard, self.block(case.body), self.number()))
        return forms.Match(subject, tuple(cases), at, self.number())

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Stmt:
        at, name_at = self.number(), self.number()
        decorators = tuple([self.expr(decorator) for decorator in node.decorator_list])
        params = self._params(node.args)
        head = self.number()
        outer, self._yields = self._yields, False
        body = self.block(node.body)
        is_generator, self._yields = self._yields, outer
        is_async = node.__class__ is ast.AsyncFunctionDef
        return forms.Function(node.name, params, body, decorators, is_async, is_generator, at, head, name_at)

    def _class(self, node: ast.ClassDef) -> Stmt:
        at, name_at = self.number(), self.number()
        decorators = tuple([self.expr(decorator) for decorator in node.decorator_list])
        bases = self._args(_in_order(node.bases, node.keywords))
        head = self.number()
        return forms.Class(node.name, bases, self.block(node.body), decorators, at, head, name_at)

    def _params(self, node: ast.arguments) -> tuple[forms.Param, ...]:
        out: list[forms.Param] = []

        def add(param: ast.arg, kind: str, default: ast.expr | None) -> None:
            value = self.expr(default) if default is not None else None
            annotation = self.expr(param.annotation) if param.annotation is not None else None
            out.append(forms.Param(param.arg, kind, value, annotation, self.number()))

        positional = [(param, "positional") for param in node.posonlyargs] + [(param, "normal") for param in node.args]
        plain = len(positional) - len(node.defaults)
        for number, (param, kind) in enumerate(positional):
            add(param, kind, node.defaults[number - plain] if number >= plain else None)
        if node.vararg is not None:
            add(node.vararg, "*", None)
        for param, default in zip(node.kwonlyargs, node.kw_defaults, strict=True):
            add(param, "keyword", default)
        if node.kwarg is not None:
            add(node.kwarg, "**", None)
        return tuple(out)

    def _assign(self, node: ast.Assign) -> Stmt:
        at = self.number()
        targets = tuple([self.expr(target) for target in node.targets])
        return forms.Assign(targets, self.expr(node.value), at)

    def _ann_assign(self, node: ast.AnnAssign) -> Stmt:
        at = self.number()
        target, annotation = self.expr(node.target), self.expr(node.annotation)
        return forms.Declare(target, annotation, self._optional(node.value), at)

    def _aug_assign(self, node: ast.AugAssign) -> Stmt:
        at = self.number()
        op = _OPERATORS[node.op.__class__]
        return forms.AugAssign(self.expr(node.target), op, self.expr(node.value), at)

    def _do(self, node: ast.Expr) -> Stmt:
        at = self.number()
        return forms.Do(self.expr(node.value), at)

    def _return(self, node: ast.Return) -> Stmt:
        at = self.number()
        return forms.Return(self._optional(node.value), at)

    def _raise(self, node: ast.Raise) -> Stmt:
        at = self.number()
        return forms.Raise(self._optional(node.exc), at)

    def _delete(self, node: ast.Delete) -> Stmt:
        at = self.number()
        targets = node.targets
        if len(targets) == 1 and isinstance(targets[0], (ast.Tuple, ast.List)):
            targets = targets[0].elts
        return forms.Delete(tuple([self._index(target) for target in targets]), at)

    def _assert(self, node: ast.Assert) -> Stmt:
        at = self.number()
        return forms.Assert(self.expr(node.test), at)

    def _jump(self, node: ast.stmt) -> Stmt:
        return forms.Jump(node.__class__.__name__.lower(), self.number())

    def _scope(self, node: ast.Global | ast.Nonlocal) -> Stmt:
        return forms.Scope(node.__class__.__name__.lower(), tuple(node.names), self.number())

    def _import(self, node: ast.Import) -> Stmt:
        at = self.number()
        return forms.Import(tuple([self._alias(alias, whole=False) for alias in node.names]), at)

    def _import_from(self, node: ast.ImportFrom) -> Stmt:
        at = self.number()
        starred = node.names[0].name == "*"
        aliases = () if starred else tuple([self._alias(alias, whole=True) for alias in node.names])
        return forms.ImportFrom(node.module or "", node.level or 0, aliases, at)

    def _alias(self, alias: ast.alias, *, whole: bool) -> forms.Alias:
        name = alias.name
        bound = alias.asname or (name if whole else name.partition(".")[0])
        return forms.Alias(name, bound, self.number())

    # -- expressions

    def expr(self, node: Any) -> Expr:
        make = _EXPRESSIONS.get(node.__class__)
        if make is None:
            raise Unknown(node.__class__.__name__)
        return make(self, node)

    def _optional(self, node: ast.expr | None) -> Expr | None:
        return None if node is None else self.expr(node)

    def _name(self, node: ast.Name) -> Expr:
        return _new(forms.Name, (node.id, self.number()))  # type: ignore[no-any-return]

    def _attribute(self, node: ast.Attribute) -> Expr:
        chain = [node]
        while isinstance(chain[-1].value, ast.Attribute):
            chain.append(chain[-1].value)
        value = self.expr(chain[-1].value)
        for link in reversed(chain):
            value = _new(forms.Attr, (value, link.attr, self.number(), self.number()))
        return value

    def _constant(self, node: ast.Constant) -> Expr:
        return _new(forms.Const, (node.value, self.number()))  # type: ignore[no-any-return]

    def _string(self, node: ast.JoinedStr) -> Expr:
        at = self.number()
        values = (part.value if isinstance(part, ast.FormattedValue) else part for part in node.values)
        return forms.FString(tuple(map(self.expr, values)), at)

    def _call(self, node: ast.Call) -> Expr:
        at = self.number()
        func = self.expr(node.func)
        args = self._args(_in_order(node.args, node.keywords))
        return _new(forms.Call, (func, args, at))  # type: ignore[no-any-return]

    def _args(self, args: Iterable[_Argument]) -> tuple[forms.Arg, ...]:
        return tuple([_new(forms.Arg, (name, star, self.expr(value), self.number())) for name, star, value in args])

    def _subscript(self, node: ast.Subscript) -> Expr:
        at = self.number()
        value = self.expr(node.value)
        return forms.Sub(value, self._index(node.slice), at)

    def _index(self, node: ast.expr) -> Expr:
        if not isinstance(node, ast.Slice):
            return self.expr(node)
        lower, upper, step = self._optional(node.lower), self._optional(node.upper), self._optional(node.step)
        return forms.Slice(lower, upper, step, self.number())

    def _sequence(self, node: Any) -> Expr:
        at = self.number()
        # An item may be a slice: of ``x[a:b, c]`` CPython makes a tuple.
        items = tuple([self._index(element) for element in node.elts])
        return forms.Sequence(_SEQUENCES[node.__class__], items, at)

    def _dict(self, node: ast.Dict) -> Expr:
        at = self.number()
        entries = []
        for written, element in zip(node.keys, node.values, strict=True):
            value = self.expr(element)
            key = self._optional(written)
            entries.append(forms.Entry(key, value, self.number()))
        return forms.Dict(tuple(entries), at)

    def _binary(self, node: ast.BinOp) -> Expr:
        at = self.number()
        return forms.Binary(_OPERATORS[node.op.__class__], self.expr(node.left), self.expr(node.right), at)

    def _unary(self, node: ast.UnaryOp) -> Expr:
        at = self.number()
        return forms.Unary(_OPERATORS[node.op.__class__], self.expr(node.operand), at)

    def _bool(self, node: ast.BoolOp) -> Expr:
        return self._operands(_OPERATORS[node.op.__class__], node.values)

    def _operands(self, op: str, values: list[ast.expr]) -> Expr:
        """``a and b and c`` as ``(a and b) and c``."""
        ats = [self.number() for _ in values[1:]]
        left = self.expr(values[0])
        for value, at in zip(values[1:], reversed(ats), strict=True):
            left = forms.Bool(op, left, self.expr(value), at)
        return left

    def _compare(self, node: ast.Compare) -> Expr:
        at = self.number()
        ops = tuple([_OPERATORS[op.__class__] for op in node.ops])
        rights = tuple([self.expr(right) for right in node.comparators])
        return forms.Compare(self.expr(node.left), ops, rights, at)

    def _if_exp(self, node: ast.IfExp) -> Expr:
        at = self.number()
        return forms.IfExp(self.expr(node.test), self.expr(node.body), self.expr(node.orelse), at)

    def _comp(self, node: Any) -> Expr:
        at = self.number()
        clauses = []
        for clause in node.generators:
            target, source = self.expr(clause.target), self.expr(clause.iter)
            ifs = tuple([self.expr(condition) for condition in clause.ifs])
            clauses.append(forms.Clause(target, source, ifs, self.number()))
        if node.__class__ is ast.DictComp:
            if node.value is None:  # {**each for each in those}, of newer Pythons
                raise Unknown("DictComp")
            key: Expr | None = self.expr(node.key)
            value = self.expr(node.value)
        else:
            key, value = None, self.expr(node.elt)
        return forms.Comp(_COMPREHENSIONS[node.__class__], key, value, tuple(clauses), at)

    def _lambda(self, node: ast.Lambda) -> Expr:
        at = self.number()
        outer = self._yields
        params, body = self._params(node.args), self.expr(node.body)
        self._yields = outer
        return forms.Lambda(params, body, at)

    def _walrus(self, node: ast.NamedExpr) -> Expr:
        at = self.number()
        return forms.Walrus(self.expr(node.target), self.expr(node.value), at)

    def _await(self, node: ast.Await) -> Expr:
        at = self.number()
        return forms.Await(self.expr(node.value), at)

    def _yield(self, node: ast.Yield) -> Expr:
        at = self.number()
        self._yields = True
        return forms.Yield(self._optional(node.value), False, at)

    def _yield_from(self, node: ast.YieldFrom) -> Expr:
        at = self.number()
        self._yields = True
        return forms.Yield(self.expr(node.value), True, at)

    def _starred(self, node: ast.Starred) -> Expr:
        value = self.expr(node.value)
        return forms.Star(value, self.number())


def _place(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _in_order(args: list[ast.expr], keywords: list[ast.keyword]) -> list[_Argument]:
    """The arguments as they are written: ``*b`` may follow ``a=1``."""
    given: list[_Argument] = [
        (None, "*", arg.value) if isinstance(arg, ast.Starred) else (None, "", arg) for arg in args
    ]
    given += [(keyword.arg, "" if keyword.arg else "**", keyword.value) for keyword in keywords]
    if args and keywords and _place(keywords[0].value) < _place(args[-1]):
        given.sort(key=lambda one: _place(one[2]))
    return given


def _pattern_names(pattern: ast.AST) -> Iterable[str]:
    for node in ast.walk(pattern):
        if isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest


_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitOr: "|", ast.BitAnd: "&", ast.BitXor: "^", ast.MatMult: "@",
    ast.UAdd: "+", ast.USub: "-", ast.Invert: "~", ast.Not: "not", ast.And: "and", ast.Or: "or", ast.Lt: "<",
    ast.Gt: ">", ast.Eq: "==", ast.LtE: "<=", ast.GtE: ">=", ast.NotEq: "!=", ast.In: "in", ast.NotIn: "not in",
    ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip

_SEQUENCES: dict[type[ast.AST], str] = {ast.Tuple: "tuple", ast.List: "list", ast.Set: "set"}

_COMPREHENSIONS: dict[type[ast.AST], str] = {
    ast.ListComp: "list",
    ast.SetComp: "set",
    ast.DictComp: "dict",
    ast.GeneratorExp: "generator",
}

_W = _Walker
_EXPRESSIONS: dict[type[ast.AST], Callable[[_Walker, Any], Expr]] = {
    ast.Name: _W._name, ast.Attribute: _W._attribute, ast.Constant: _W._constant, ast.JoinedStr: _W._string,
    ast.Call: _W._call, ast.Subscript: _W._subscript, ast.Tuple: _W._sequence, ast.List: _W._sequence,
    ast.Set: _W._sequence, ast.Dict: _W._dict, ast.BinOp: _W._binary, ast.UnaryOp: _W._unary, ast.BoolOp: _W._bool,
    ast.Compare: _W._compare, ast.IfExp: _W._if_exp, ast.ListComp: _W._comp, ast.SetComp: _W._comp,
    ast.DictComp: _W._comp, ast.GeneratorExp: _W._comp, ast.Lambda: _W._lambda, ast.NamedExpr: _W._walrus,
    ast.Await: _W._await, ast.Yield: _W._yield, ast.YieldFrom: _W._yield_from, ast.Starred: _W._starred,
    ast.Slice: _W._index,
}  # fmt: skip

_STATEMENTS: dict[type[ast.AST], Callable[[_Walker, Any], Stmt]] = {
    ast.Assign: _W._assign, ast.AnnAssign: _W._ann_assign, ast.AugAssign: _W._aug_assign, ast.Expr: _W._do,
    ast.Return: _W._return, ast.Raise: _W._raise, ast.Delete: _W._delete, ast.Assert: _W._assert,
    ast.Pass: _W._jump, ast.Break: _W._jump, ast.Continue: _W._jump, ast.Global: _W._scope, ast.Nonlocal: _W._scope,
    ast.Import: _W._import, ast.ImportFrom: _W._import_from, ast.If: _W._if, ast.For: _W._for,
    ast.AsyncFor: _W._for, ast.While: _W._while, ast.With: _W._with, ast.AsyncWith: _W._with, ast.Try: _W._try,
    ast.Match: _W._match, ast.FunctionDef: _W._function, ast.AsyncFunctionDef: _W._function, ast.ClassDef: _W._class,
}  # fmt: skip

# Statements that are no forms.
_LEFT_OUT: frozenset[type[ast.AST]] = frozenset({getattr(ast, "TypeAlias", ast.Pass)} - {ast.Pass})

if hasattr(ast, "TryStar"):
    _STATEMENTS[ast.TryStar] = _W._try
