"""What one file says: every form at its exact place, and no text that breaks the reader."""

from __future__ import annotations

import ast
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcheck.facts import Unreadable, extract, forms
from dlcheck.facts.forms import ModuleFacts
from dlcheck.facts.gate import refuse_hazards, refuse_unless_python
from dlcheck.files import decode, to_source
from dlcheck.source import Source


def source(text: str) -> Source:
    return Source("a.py", "a.py", text)


def below(item: object) -> Iterator[Any]:
    """A form and all forms below it."""
    todo = [item]
    while todo:
        here = todo.pop()
        if hasattr(here, "_fields"):
            yield here
        if isinstance(here, tuple):
            todo.extend(reversed(here))


def texts(text: str | Source, kind: type[Any]) -> list[str]:
    """The source of each form of a kind, in order."""
    read = source(text) if isinstance(text, str) else text
    facts = extract(read)
    spans = sorted(facts.span(form.at) for form in below(facts.body) if isinstance(form, kind))
    return [read.text[start:end] for start, end in spans]


def first(text: str, kind: type[Any]) -> Any:
    return next(form for form in below(extract(source(text)).body) if isinstance(form, kind))


def place(read: Source, kind: type[Any] = forms.Call) -> tuple[int, int, int, int]:
    """Where people see the first form of a kind."""
    facts = extract(read)
    start, end = min(facts.span(form.at) for form in below(facts.body) if isinstance(form, kind))
    where = read.place(start, end)
    return where.line, where.column, where.end_line, where.end_column


# -- places

CALL_PLACES = {
    "plain": ("f(x)\n", (1, 1, 1, 5)),
    "no final newline": ("f(x)", (1, 1, 1, 5)),
    "tab": ("if a:\n\tf(x)\n", (2, 2, 2, 6)),
    "tab inside": ("a =\tf(\tx)\n", (1, 5, 1, 10)),
    "CRLF": ("a = 1\r\nb = f(x)\r\n", (2, 5, 2, 9)),
    "CR": ("a = 1\rb = f(x)\r", (2, 5, 2, 9)),
    "mixed ends": ("a = 1\r\nc = 2\rd = 3\nb = f(x)\n", (4, 5, 4, 9)),
    "CRLF inside": ("b = f(\r\n    x,\r\n)\r\n", (1, 5, 3, 2)),
    "CRLF in a string": ('a = """1\r\n2"""; f(x)\r\n', (2, 7, 2, 11)),
    "form feed": ("a = 1\n\x0c\nb = f(x)\n", (3, 5, 3, 9)),
    "form feed before": ("a = 1\n\x0cb = f(x)\n", (2, 6, 2, 10)),
    "form feed in a comment": ("# \x0c a\nb = f(x)\n", (2, 5, 2, 9)),
    "other ends of line": ("a = '\u2028\x85\x1c'\nb = f(x)\n", (2, 5, 2, 9)),
    "continued": ("a = 1 + \\\n    f(x)\n", (2, 5, 2, 9)),
    "emoji": ("a = '😀'; f(x)\n", (1, 10, 1, 14)),
    "combining": ("e\u0301 = f(x)\n", (1, 6, 1, 10)),
    "wide": ("变量 = f(x)\n", (1, 6, 1, 10)),
    "comments": ("f(  # one\n    x,  # two\n    # three\n)\n", (1, 1, 4, 2)),
    "parenthesised": ("a = ((f(x)))\n", (1, 7, 1, 11)),
    "parenthesised name": ("(f)(x)\n", (1, 1, 1, 7)),
    "decorated": ("@f(x)\ndef g(): ...\n", (1, 2, 1, 6)),
    "after a semicolon": ("a; f(x); b\n", (1, 4, 1, 8)),
    "on the line of an if": ("if a: f(x)\n", (1, 7, 1, 11)),
    "only a comment after": ("f(x)  # no end", (1, 1, 1, 5)),
    "blank lines before": ("\n\n\nf(x)\n", (4, 1, 4, 5)),
    "blank lines with spaces": ("if a:\n   \n    f(x)\n  \n", (3, 5, 3, 9)),
    "less indented comment": ("if a:\n# c\n    f(x)\n", (3, 5, 3, 9)),
    "no space": ("pass;f(x)", (1, 6, 1, 10)),
    "form feeds before": ("\x0c\x0ca = 1\n\x0c\x0cif a:\n\x0c    f(x)\n", (3, 6, 3, 10)),
    "space and form feed before": (" \x0cf(x)\n", (1, 3, 1, 7)),
    "backslash before": ("\\\nf(x)\n", (2, 1, 2, 5)),
    "backslash and form feed before": ("a\n\\\r\n\x0cf(x)\r\n", (3, 2, 3, 6)),
    "backslash and space": ("if a:\n    b\n\\\n    f(x)\n", (4, 5, 4, 9)),
    "CR at the end": ("f(x)\r", (1, 1, 1, 5)),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CALL_PLACES.values(), ids=CALL_PLACES)
def test_place_of_a_call(text: str, expected: tuple[int, int, int, int]) -> None:
    assert place(source(text)) == expected


ENCODINGS = {
    "latin-1": "é",
    "cp1252": "€",
    "gbk": "数据",
    "shift_jis": "データ",
    "utf-8": "😀",
    "iso-8859-15": "€",
    "koi8-r": "д",
    "euc-kr": "한",
    "big5": "資",
}


@pytest.mark.parametrize(("encoding", "letters"), ENCODINGS.items(), ids=ENCODINGS)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_columns_count_characters_of_any_encoding(encoding: str, letters: str, newline: str) -> None:
    text = newline.join([f"# -*- coding: {encoding} -*-", f"a = '{letters}'; f('{letters}')", ""])
    read = to_source("a.py", text.encode(encoding))
    column = len(f"a = '{letters}'; ") + 1
    assert place(read) == (2, column, 2, column + len(f"f('{letters}')"))
    assert [form.value for form in below(extract(read).body) if isinstance(form, forms.Const)] == [letters, letters]


def test_a_byte_order_mark_is_no_column() -> None:
    read = to_source("a.py", b"\xef\xbb\xbff(x)\n")
    assert read.bom
    assert place(read) == (1, 1, 1, 5)


# -- what each form spans

SPANS: dict[str, tuple[str, type, list[str]]] = {
    "calls of calls": ("a.b(1).c(2)\n", forms.Call, ["a.b(1)", "a.b(1).c(2)"]),
    "arguments": ("f(a, *b, k=1, **c)\n", forms.Arg, ["a", "*b", "k=1", "**c"]),
    "arguments with space": ("f( a , k = 1 , * b )\n", forms.Arg, ["a", "k = 1", "* b"]),
    "names": ("a.b = c[d]\n", forms.Name, ["a", "c", "d"]),
    "attributes": ("a.b .c\n", forms.Attr, ["a.b", "a.b .c"]),
    "subscript": ("a[b, c:d]\n", forms.Sub, ["a[b, c:d]"]),
    "slice": ("a[b:c:d]\n", forms.Slice, ["b:c:d"]),
    "dict": ("x = {'a': 1, **b}\n", forms.Dict, ["{'a': 1, **b}"]),
    "entries": ("x = {'a' : 1, **b}\n", forms.Entry, ["'a' : 1", "b"]),
    # Parentheses are never part of what stands in them.
    "tuple in parentheses": ("x = (a, b)\n", forms.Sequence, ["a, b"]),
    "naked tuple": ("x = a, b\n", forms.Sequence, ["a, b"]),
    "set": ("x = {a, *b}\n", forms.Sequence, ["{a, *b}"]),
    "star": ("x = [a, * b]\n", forms.Star, ["* b"]),
    "binary": ("x = (a + b) * c\n", forms.Binary, ["a + b", "(a + b) * c"]),
    "unary": ("x = not -a\n", forms.Unary, ["not -a", "-a"]),
    "bool": ("x = a and b or c\n", forms.Bool, ["a and b", "a and b or c"]),
    "compare": ("x = a < b is not c\n", forms.Compare, ["a < b is not c"]),
    "conditional": ("x = a if b else c\n", forms.IfExp, ["a if b else c"]),
    "comprehension": ("x = [a for a in b if c]\n", forms.Comp, ["[a for a in b if c]"]),
    "generator argument": ("f(a for a in b)\n", forms.Comp, ["a for a in b"]),
    "clauses": ("x = [a for b in c if d for a in b]\n", forms.Clause, ["b in c if d", "a in b"]),
    "lambda": ("f(lambda x, *y: x)\n", forms.Lambda, ["lambda x, *y: x"]),
    "walrus": ("if (n := f(x)): ...\n", forms.Walrus, ["n := f(x)"]),
    "await": ("async def g():\n    await f(x)\n", forms.Await, ["await f(x)"]),
    "yield": ((
"def g():\n    x = yield a\n"
"    yield from b\n    yield\n"
), forms.Yield, ["yield a", "yield from b", "yield"]),
    "f-string": ("x = f'{a!r:>{b}} {c}'\n", forms.FString, ["f'{a!r:>{b}} {c}'"]),
    "names in an f-string": ("x = f'{a.b!r} {c}'\n", forms.Name, ["x", "a", "c"]),
    "joined strings": ("x = ('a'\n     'b')\n", forms.Const, ["'a'\n     'b'"]),
    "assignment": ("a = b = c  # d\n", forms.Assign, ["a = b = c"]),
    "declaration": ("a: int = 1\n", forms.Declare, ["a: int = 1"]),
    "augmented": ("a.b @= c; d\n", forms.AugAssign, ["a.b @= c"]),
    "import": ("import a.b as c, d\n", forms.Alias, ["a.b as c", "d"]),
    "import from": ("from .a import (b as c,\n    d)\n", forms.Alias, ["b as c", "d"]),
    "parameters": ("def f(a, /, b: int = 1, *c, d, **e): ...\n", forms.Param, ["a", "b", "*c", "d", "**e"]),
    "class": ("@d\nclass A(B, k=C):\n    x = 1\n", forms.Class, ["class A(B, k=C):\n    x = 1\n"]),
    "return": ("def f():\n    return (a)\n", forms.Return, ["return (a)"]),
    "raise": ("raise A from b\n", forms.Raise, ["raise A from b"]),
    "assert": ("assert a, b\n", forms.Assert, ["assert a, b"]),
    "delete": ("del a.b, c\n", forms.Delete, ["del a.b, c"]),
    "global": ("def f():\n    global a, b\n", forms.Scope, ["global a, b"]),
    "with items": ("with a as b, c: ...\n", forms.WithItem, ["a as b", "c"]),
    "parenthesised with": ("with (\n    a as b,\n    c,\n): ...\n", forms.WithItem, ["a as b", "c"]),
    "handlers": ("try: a\nexcept B as e: c\nelse: d\n", forms.Handler, ["except B as e: c\n"]),
    "cases": ("match a:\n    case [b, *c] if d: e\n", forms.Case, ["case [b, *c] if d: e\n"]),
    "star index": ("def f(*args): g(*args)\n", forms.Call, ["g(*args)"]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "expected"), SPANS.values(), ids=SPANS)
def test_span(text: str, kind: type, expected: list[str]) -> None:
    assert sorted(texts(text, kind)) == sorted(expected)


HEADS = {
    "for": ("for a in f(b):  # c\n    d\n", "for a in f(b)"),
    "async for": ("async def g():\n    async for a in b: c\n", "async for a in b"),
    "while": ("while (a\n       and b):\n    c\n", "while (a\n       and b"),
    "if": ("if a: b\nelse: c\n", "if a"),
    "with": ("with a as b, c:\n    d\n", "with a as b, c"),
    "match": ("match a.b:\n    case _: c\n", "match a.b"),
}


@pytest.mark.parametrize(("text", "expected"), HEADS.values(), ids=HEADS)
def test_head(text: str, expected: str) -> None:
    facts = extract(source(text))
    heads = [facts.span(form.head) for form in below(facts.body) if hasattr(form, "head")]
    spanned = [text[start:end] for start, end in heads]
    assert expected in spanned


def test_function_head_name_and_decorators() -> None:
    text = "@a.b(1)\n@c\nasync def f(x, *, y=2) -> int:  # d\n    return x\n"
    facts = extract(source(text))
    function = facts.body[0]
    assert isinstance(function, forms.Function)
    start, end = facts.span(function.name_at)
    assert (text[start:end], text[start - 4 : start]) == ("f", "def ")
    start, end = facts.span(function.head)
    assert text[start:end] == "async def f(x, *, y=2"
    assert [texts_of(text, facts, decorator) for decorator in function.decorators] == ["a.b(1)", "c"]
    assert function.is_async


def texts_of(text: str, facts: ModuleFacts, form: Any) -> str:
    start, end = facts.span(form.at)
    return text[start:end]


def test_name_of_an_attribute() -> None:
    text = "loader . to(x)\n"
    attribute = first(text, forms.Attr)
    start, end = extract(source(text)).span(attribute.name_at)
    assert (start, text[start:end]) == (9, "to")


# -- CPython's own parser as the judge

JUDGED: dict[type[ast.AST], type] = {
    ast.Name: forms.Name,
    ast.Call: forms.Call,
    ast.Attribute: forms.Attr,
    ast.Lambda: forms.Lambda,
    ast.Dict: forms.Dict,
    ast.BinOp: forms.Binary,
    ast.IfExp: forms.IfExp,
    ast.Yield: forms.Yield,
    ast.YieldFrom: forms.Yield,
    ast.FunctionDef: forms.Function,
    ast.For: forms.For,
    ast.Assign: forms.Assign,
    ast.Return: forms.Return,
    ast.ClassDef: forms.Class,
}

COMPOUND = {forms.Class, forms.For, forms.Function}

STDLIB = Path(sysconfig.get_path("stdlib"))
SAMPLE = ("argparse", "ast", "dataclasses", "functools", "typing", "tarfile", "inspect", "_pydecimal")


def left_out(node: ast.AST) -> ast.AST | None:
    """What facts do not hold of a statement: no rule asks about it."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return node.returns
    if isinstance(node, ast.Raise):
        return node.cause
    return node.msg if isinstance(node, ast.Assert) else None


# Patterns, type parameters and aliases are no forms; before 3.12 the places inside f-strings are wrong.
_NO_FORMS = (ast.JoinedStr, ast.pattern, *(getattr(ast, name, ast.pattern) for name in ("type_param", "TypeAlias")))


def judged(text: str) -> dict[type, list[tuple[int, int]]]:
    starts = source(text).starts
    lines = [text[start:end].encode() for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1][:column].decode())

    found: dict[type, list[tuple[int, int]]] = {kind: [] for kind in JUDGED.values()}
    todo: list[ast.AST] = [ast.parse(text)]
    while todo:
        node = todo.pop()
        if isinstance(node, _NO_FORMS):
            continue
        kind = JUDGED.get(type(node))
        if kind is not None:
            assert isinstance(node, (ast.expr, ast.stmt))
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            found[kind].append((offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)))
        todo.extend(child for child in ast.iter_child_nodes(node) if child is not left_out(node))
    return found


def extracted(text: str) -> dict[type, list[tuple[int, int]]]:
    facts = extract(source(text))
    found: dict[type, list[tuple[int, int]]] = {kind: [] for kind in JUDGED.values()}
    todo: list[Any] = [facts.body]
    while todo:
        form = todo.pop()
        if isinstance(form, forms.FString):
            continue
        if type(form) in found:
            found[type(form)].append(facts.span(form.at))
        if isinstance(form, tuple):
            todo.extend(form)
    return found


@pytest.mark.parametrize("name", SAMPLE)
def test_places_are_those_of_cpython(name: str) -> None:
    text = decode((STDLIB / f"{name}.py").read_bytes())[0]
    ours, theirs = extracted(text), judged(text)
    for kind, spans in theirs.items():
        if kind in COMPOUND:  # which end with the comment after them
            assert sorted(start for start, _ in ours[kind]) == sorted(start for start, _ in spans)
        else:
            missing, invented = set(spans) - set(ours[kind]), set(ours[kind]) - set(spans)
            assert not [text[start:end] for start, end in sorted(invented)], kind
            assert not [text[start:end] for start, end in sorted(missing)], kind
    assert len(theirs[forms.Name]) > 100


# -- what forms say


def test_each_function_is_a_generator_by_itself() -> None:
    text = textwrap.dedent(
        """
        def outer():
            def inner():
                yield 1
            class A:
                def method(self):
                    yield from inner()
                def plain(self):
                    return (lambda: (yield))
            return inner

        def loud():
            return inner
            if False:
                yield

        async def stream():
            async for x in y:
                yield x

        def lazy(): return (x for x in y)

        def assigned():
            got = yield
        """
    )
    functions = {form.name: form for form in below(extract(source(text)).body) if isinstance(form, forms.Function)}
    assert {name: form.is_generator for name, form in functions.items()} == {
        "outer": False,
        "inner": True,
        "method": True,
        "plain": False,
        "loud": True,
        "stream": True,
        "lazy": False,
        "assigned": True,
    }
    assert [name for name, form in functions.items() if form.is_async] == ["stream"]


VALUES: dict[str, object] = {
    "1_000": 1000,
    "0xff": 255,
    "1e3": 1000.0,
    "1j": 1j,
    "...": ...,
    "None": None,
    "True": True,
    "'a' \"b\"": "ab",
    "b'a' b'\\xff'": b"a\xff",
    r"r'\d'": r"\d",
    r"'\ud83d'": "\ud83d",
    r"'\N{BULLET}'": "\u2022",
    "u'a'": "a",
    "'''a\n'''": "a\n",
    "1e999": float("inf"),
}


@pytest.mark.parametrize(("text", "value"), VALUES.items(), ids=VALUES)
def test_constant(text: str, value: object) -> None:
    form = first(f"x = {text}\n", forms.Const)
    assert (type(form.value), form.value) == (type(value), value)


def test_alias_names() -> None:
    lines = ("import a.b", "import a.b as c", "from ..d import e as f, g", "from . import h", "from i import *")
    plain, renamed, relative, here, star = extract(source("\n".join(lines))).body
    assert isinstance(plain, forms.Import)
    assert [(alias.name, alias.bound) for alias in plain.aliases] == [("a.b", "a")]
    assert isinstance(renamed, forms.Import)
    assert [(alias.name, alias.bound) for alias in renamed.aliases] == [("a.b", "c")]
    assert isinstance(relative, forms.ImportFrom)
    assert (relative.module, relative.level) == ("d", 2)
    assert [(alias.name, alias.bound) for alias in relative.aliases] == [("e", "f"), ("g", "g")]
    assert isinstance(here, forms.ImportFrom)
    assert (here.module, here.level) == ("", 1)
    assert isinstance(star, forms.ImportFrom)
    assert (star.module, star.aliases) == ("i", ())


PATTERNS = {
    "a": ["a"],
    "_": [],
    "[a, *b]": ["a", "b"],
    "{'k': a, **b}": ["a", "b"],
    "A(b, c=d)": ["b", "d"],
    "A() as b": ["b"],
    "(A() | B.c) as b": ["b"],
    "B.c": [],
}


@pytest.mark.parametrize(("pattern", "names"), PATTERNS.items(), ids=PATTERNS)
def test_names_that_a_pattern_binds(pattern: str, names: list[str]) -> None:
    case = first(f"match x:\n    case {pattern}:\n        pass\n", forms.Case)
    assert sorted(case.names) == names


NEWER = {  # which libcst reads whatever Python runs
    "type parameters (3.12)": ("def f[T](x: T) -> T:\n    return g(x)\n", "g(x)"),
    "generic class (3.12)": ("class A[T]:\n    x = g(T)\n", "g(T)"),
    "type statement (3.12)": ("type A[T] = list[T]\ng(A)\n", "g(A)"),
    "quotes in f-strings (3.12)": ("x = f'{a['b']}'; g(x)\n", "g(x)"),
    "groups of exceptions (3.11)": ("try:\n    a\nexcept* B:\n    g(b)\n", "g(b)"),
}


@pytest.mark.parametrize(("text", "call"), NEWER.values(), ids=NEWER)
def test_newer_syntax(text: str, call: str) -> None:
    assert texts(text, forms.Call) == [call]


# -- generated programs: every expression is where its span says

SPACE = st.sampled_from(["", " ", "  ", "\t", "\n", "  # é (\n ", "\r\n", " \\\n", "\x0c"])
NAMES = st.sampled_from(["a", "é", "loader", "变量"])
LITERALS = st.sampled_from(["1", "0.5", "'😀'", '"""x\n(\n"""', "b'x'", "None", "...", "f'{a}'", "'a' 'b'"])


def _joined(*pieces: st.SearchStrategy[str] | str) -> st.SearchStrategy[str]:
    """Pieces with blanks, ends of line and comments between them."""
    parts = [st.just(piece) if isinstance(piece, str) else piece for piece in pieces]
    return st.tuples(*(part for piece in parts for part in (SPACE, piece)), SPACE).map("".join)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    item = _joined("(", inner, ")")
    return st.one_of(
        item,
        _joined(item, st.sampled_from(["+", "*", "**", "%", "@", "|"]), item),
        _joined(item, st.sampled_from(["<", "==", " in ", " is not "]), item),
        _joined(item, " and ", item),
        _joined(" not ", item),
        _joined(item, ".", NAMES),
        _joined(item, "[", item, "]"),
        _joined(item, "[", item, ":", item, "]"),
        _joined(item, "[", item, ",", item, "]"),
        _joined(NAMES, "(", item, ",", "k", "=", item, ",", "*", item, ",", "**", item, ")"),
        _joined("[", item, ",", "*", item, "]"),
        _joined("{", item, ":", item, ",", "**", item, "}"),
        _joined("{", item, ",", item, ",", "}"),
        _joined("(", item, ",", ")"),
        _joined(item, " if ", item, " else ", item),
        _joined("[", item, " for ", NAMES, " in ", item, " if ", item, "]"),
        _joined("(", item, " for ", NAMES, " in ", item, ")"),
        _joined("{", item, ":", item, " for ", NAMES, " in ", item, "}"),
        _joined(" lambda ", NAMES, "=", item, ":", item),
        _joined("(", NAMES, ":=", item, ")"),
    )


# Not st.recursive(): to shrink a failure hypothesis writes its strategies out, which takes gigabytes for this one.
@st.composite
def expressions(draw: st.DrawFn, depth: int) -> str:
    if not depth or not draw(st.integers(0, 2)):
        return draw(NAMES | LITERALS)
    return draw(_larger(expressions(depth - 1)))


FRAMES = (
    "x = ({})\n",
    "if a:\n\tf(({}), y)\n",
    "\x0c@g(({}))\ndef h():\n  pass",
    "é = 1; y = [({}),]",
    "def f(a=({})) :\r\n  return (({}))\r\n",
)
EXPRESSION_FORMS = {
    forms.Const, forms.Name, forms.Attr, forms.Sub, forms.Call, forms.Sequence, forms.Dict, forms.Binary, forms.Unary,
    forms.Bool, forms.Compare, forms.IfExp, forms.Comp, forms.Lambda, forms.Walrus, forms.FString,
}  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(expressions(depth=3), st.sampled_from(FRAMES))
def test_the_source_at_a_span_is_the_expression(text: str, frame: str) -> None:
    whole = frame.replace("{}", text)
    facts = extract(source(whole))
    # Several indices are a tuple only inside their brackets.
    indices = {form.index.at for form in below(facts.body) if isinstance(form, forms.Sub)}
    checked = 0
    for form in below(facts.body):
        if type(form) not in EXPRESSION_FORMS or form.at in indices:
            continue
        start, end = facts.span(form.at)
        assert bare(parsed(whole[start:end], form)) == bare(form)
        checked += 1
    assert checked >= 1


def bare(form: Any) -> Any:
    """A form without its numbers."""
    if hasattr(form, "_fields"):
        kept = [name for name in form._fields if name not in ("at", "name_at")]
        return (type(form).__name__, *(bare(getattr(form, name)) for name in kept))
    if isinstance(form, tuple):
        return tuple(map(bare, form))
    return type(form), form


def parsed(text: str, form: Any) -> Any:
    """The one expression that a text is."""
    inner = f"({text})" if isinstance(form, forms.Comp) and form.kind == "generator" else text
    (statement,) = extract(source(f"(\n{inner}\n)\n")).body
    assert isinstance(statement, forms.Do)
    return statement.value


# -- long tables of constants

NUMBERS = [str(number) for number in range(3000)]
TABLES = {
    "a list": f"[{', '.join(NUMBERS)}]",
    "a tuple of signed numbers": f"({', '.join('-' + number for number in NUMBERS)})",
    "a set, a line for each": "{\n" + "".join(f"    {number},\n" for number in NUMBERS) + "}",
    "a dict of rows": "{" + ", ".join(f'"é{number}": [{number}, 2.5, None]' for number in NUMBERS) + "}",
    "rows": "[" + ",\r\n".join(f"({number}, 'ß')" for number in NUMBERS) + "]",
    "comments": "[" + ", # (one\n".join(NUMBERS) + "]",
    "joined strings": "[" + ", ".join(f"'a' 'b{number}'" for number in NUMBERS) + "]",
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_long_table_is_not_kept(table: str, newline: str) -> None:
    text = f'x = "ü", {table}, f(1)\ny = g(2)  # end\n'.replace("\r\n", "\n").replace("\n", newline)
    facts = extract(source(text))
    assert sum(1 for _ in below(facts.body)) < 500
    assert len(facts.spans) < 1000
    assert texts(text, forms.Call) == ["f(1)", "g(2)"]
    kinds = (forms.Dict, forms.Sequence)
    written = table.replace("\r\n", "\n").replace("\n", newline)
    written = written.strip("()")  # which are no part of a tuple
    assert written in [text[slice(*facts.span(form.at))] for form in below(facts.body) if isinstance(form, kinds)]


def test_how_many_are_left_out() -> None:
    *kept, star = first(f"x = [{', '.join(NUMBERS)}]\n", forms.Sequence).items
    assert isinstance(star, forms.Star)
    assert bare(star.value) == ("Const", (int, len(NUMBERS) - len(kept)))
    assert [item.value for item in kept] == list(range(len(kept)))


LONG_LIST = f"[{', '.join(NUMBERS)}]"
WHOLE = {
    "something else among them": f"[{', '.join(NUMBERS)}, other]",
    "brackets around items": f"[{', '.join(f'({number})' for number in NUMBERS)}]",
    "no brackets around the whole": f"{', '.join(NUMBERS)}",
    "none, but brackets at both ends": f"(0), {', '.join(NUMBERS)}, (1)",
    "keys that are no constants": "{" + ", ".join(f"k{number}: {number}" for number in NUMBERS) + "}",
}


@pytest.mark.parametrize("table", WHOLE.values(), ids=WHOLE)
def test_what_may_mean_something_is_kept(table: str) -> None:
    kept = sum(isinstance(form, forms.Const) for form in below(extract(source(f"x = {table}\n")).body))
    assert kept >= len(NUMBERS)


def test_what_stands_beside_a_long_table_is_kept() -> None:
    text = f'x = {{"words": {LONG_LIST}, "num_workers": 4, "more": [{LONG_LIST}, f({LONG_LIST}), name]}}\n'
    facts = extract(source(text))
    assert sum(1 for _ in below(facts.body)) < 500
    entries = first(text, forms.Dict).entries
    assert [entry.key.value for entry in entries] == ["words", "num_workers", "more"]
    assert entries[1].value.value == 4
    assert sorted(texts(text, forms.Name)) == ["f", "name", "x"]


def test_what_is_wrong_beside_a_long_table_is_placed_where_it_stands() -> None:
    with pytest.raises(Unreadable) as caught:
        extract(source("x = [\n" + "".join(f"{number},\n" for number in NUMBERS) + "]\ny = = 1\n"))
    assert caught.value.line == len(NUMBERS) + 3


# Only whether it is Python

BROKEN = [
    "y = = 1\n",
    "\n\ndef f(:\n",
    "x = '\n",
    "if x:\npass\n",
    "x = 1\0\n",
    "return = 2\n",
    "print 'x'\n",
    "(" * 5000,
]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_file_that_nobody_reads_is_broken_where_a_tree_of_it_would_be(text: str) -> None:
    with pytest.raises(Unreadable) as alone:
        refuse_unless_python(text)
    with pytest.raises(Unreadable) as whole:
        refuse_hazards(text)
    assert (alone.value.line, alone.value.column, str(alone.value)) == (
        whole.value.line, whole.value.column, str(whole.value)
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["def f(a, a): pass\n", "nonlocal x\n", "def f(x):\n    global x\n", "return 1\n", "\ufeffx = 1\n"],
)
def test_what_only_the_compiler_refuses_is_python(text: str) -> None:
    refuse_hazards(text)
    refuse_unless_python(text)
