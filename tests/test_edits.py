"""Edits of calls and dict literals: every layout, what is refused, and a property over generated calls."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcheck import edits
from dlcheck.edits import Refused
from dlcheck.facts import ModuleFacts, extract, forms
from dlcheck.findings import Edit
from dlcheck.source import Cell, Source


def walk(form: Any) -> Iterator[Any]:
    if isinstance(form, tuple):
        yield form
        for part in form:
            yield from walk(part)


def parse(text: str, kind: type = forms.Call, cells: tuple[Cell, ...] = ()) -> tuple[Source, ModuleFacts, Any]:
    """A source, its facts, and its first call or dict literal."""
    source = Source("train.py", "/train.py", text, cells=cells)
    facts = extract(source)
    return source, facts, next(form for form in walk(facts.body) if isinstance(form, kind))


def edited(
    do: Callable[..., Edit | Refused], text: str, *args: Any, kind: type = forms.Call, **options: Any
) -> str | None:
    source, facts, form = parse(text, kind)
    edit = do(source, facts, form, *args, **options)
    if isinstance(edit, Refused):
        assert edit.reason
        return None
    result = edits.apply(source, [edit])
    ast.parse(result)
    return result


ADDED = [
    ("f()", "f(w=4)"),
    ("f( )", "f(w=4)"),
    ("f(\n)", "f(w=4)"),
    ("f(a)", "f(a, w=4)"),
    ("f(a )", "f(a, w=4 )"),
    ("f(a,)", "f(a, w=4,)"),
    ("f(a, )", "f(a, w=4, )"),
    ("f((a))", "f((a), w=4)"),
    ("(f)((a))", "(f)((a), w=4)"),
    ("(f(a))", "(f(a, w=4))"),
    ("f (a)", "f (a, w=4)"),
    ("f[int](a)(b)", "f[int](a)(b, w=4)"),
    ("f(b=1, *a)", None),  # `a` may fill every parameter of DataLoader but the keyword-only ones
    ("f(**a)", None),
    ("f(**{'b': 1})", "f(**{'b': 1}, w=4)"),
    ("f(**{'w': 1})", None),
    ("f(**{**x})", None),
    ("f(**{k: 1})", None),
    ("f(w=1)", None),
    ("f(x for x in y)", "f((x for x in y), w=4)"),
    ("f((a) for a in (b))", "f(((a) for a in (b)), w=4)"),
    ("f((x for x in y))", "f((x for x in y), w=4)"),
    ("f(\n    x for x in y  # all\n)", "f(\n    (x for x in y),  # all\n    w=4\n)"),
    ("f(a, b,\n  c)", "f(a, b,\n  c, w=4)"),
    ("f(\n    a, b  # two\n)", "f(\n    a, b, w=4  # two\n)"),
    ("f(\n    a, b,  # two\n)", "f(\n    a, b, w=4,  # two\n)"),
    ("f(\n    a, b,\n    c,\n    d,\n)", "f(\n    a, b,\n    c,\n    d,\n    w=4,\n)"),
    ("f(\n    a, b,\n    c,\n)", "f(\n    a, b,\n    c, w=4,\n)"),
    ("f(a,\n  b)", "f(a,\n  b,\n  w=4)"),
    ("f(\n    a,\n    b)", "f(\n    a,\n    b,\n    w=4)"),
    ("f(\n    a,\n    b,)", "f(\n    a,\n    b,\n    w=4,)"),
    ("f(\n    a,\n    b,\n)", "f(\n    a,\n    b,\n    w=4,\n)"),
    ("f(\n    a,\n    b\n)", "f(\n    a,\n    b,\n    w=4\n)"),
    ("f(\n    a\n)", "f(\n    a,\n    w=4\n)"),
    ("f(\n\ta,\n\tb,\n)", "f(\n\ta,\n\tb,\n\tw=4,\n)"),
    ("f(\n    a,  # A\n    b,  # B\n    # end\n)", "f(\n    a,  # A\n    b,  # B\n    w=4,\n    # end\n)"),
    ("f(\n    a,\n    b  # B (\n)", "f(\n    a,\n    b,  # B (\n    w=4\n)"),
    ("f(\n    a,\n    b  # B\n    ,\n)", "f(\n    a,\n    b  # B\n    ,\n    w=4,\n)"),
    (
        "f(\n    a,\n    b=lambda x: (\n        x\n    ),\n)",
        "f(\n    a,\n    b=lambda x: (\n        x\n    ),\n    w=4,\n)",
    ),
    ("f(a(\n    b,\n))", "f(a(\n    b,\n), w=4)"),
    ("f(  # none\n)", "f(  # none\n    w=4,\n)"),
    ("if x:\n    f(\n        # none\n    )", "if x:\n    f(\n        # none\n        w=4,\n    )"),
    ("f(\r\n    a,\r\n    b,\r\n)\r\n", "f(\r\n    a,\r\n    b,\r\n    w=4,\r\n)\r\n"),
    ("f(a, \\\n  b)", "f(a, \\\n  b,\n  w=4)"),
    ("f(\n    a,\n    b \\\n)", "f(\n    a,\n    b, \\\n    w=4\n)"),
    ("f(a)  # f(b)", "f(a, w=4)  # f(b)"),
    ("f('(', \")\")", "f('(', \")\", w=4)"),
    ("é = '🔥'; f(a)", "é = '🔥'; f(a, w=4)"),
]


def spelt_out(text: str) -> str:
    """The table above says ``w`` for num_workers, to be readable."""
    return text.replace("w=", "num_workers=").replace("'w'", "'num_workers'")


@pytest.mark.parametrize(("before", "after"), ADDED)
def test_add_argument(before: str, after: str | None) -> None:
    assert edited(edits.add_argument, spelt_out(before), "num_workers", "4") == (after and spelt_out(after))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("f(**loader_kwargs)", "`**loader_kwargs` may already set `w`"),
        ("f(b=1, *a)", "`*a` may already set `w`"),
        ("f(w=1, w=2)", "`w` is given twice"),
    ],
)
def test_a_refusal_says_what_stands_in_the_way(text: str, reason: str) -> None:
    source, facts, call = parse(text)
    assert edits.set_argument(source, facts, call, "w", "1", order=("a", "w")) == Refused(reason)


def test_star_args_cannot_hold_what_is_keyword_only() -> None:
    assert edited(edits.add_argument, "DL(*a)", "persistent_workers", "True") == "DL(*a, persistent_workers=True)"
    assert edited(edits.add_argument, "DL(*a)", "pin_memory", "True") is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x.to(d)", "x.to(d, non_blocking=True)"),
        ("x.cuda()", "x.cuda(non_blocking=True)"),
        ("x.cuda(0)", "x.cuda(0, non_blocking=True)"),
        ("x.cuda(0, False)", "x.cuda(0, True)"),
        ("x.cuda(0, non_blocking=False)", "x.cuda(0, non_blocking=True)"),
        ("x.to(d, torch.float)", "x.to(d, torch.float, non_blocking=True)"),
        ("x.to(d, dtype)", "x.to(d, dtype, non_blocking=True)"),
        ("x.to(d, None, False)", "x.to(d, None, True)"),
        ("x.to(other, False)", "x.to(other, True)"),
        ("x.to(d, y)", None),  # a dtype, or a flag
        ("x.to(*where)", None),
        ("x.to(d, **kwargs)", None),
        ("x.to(d, non_blocking=True)", None),
        ("x.to(d, non_blocking = ( False ))", "x.to(d, non_blocking = True)"),
        ("x.to(d, non_blocking=(  # why\n False))", None),
        ("x.to(device=d)", "x.to(device=d, non_blocking=True)"),
    ],
)
def test_set_non_blocking(before: str, after: str | None) -> None:
    assert edited(edits.set_argument, before, "non_blocking", "True") == after


@pytest.mark.parametrize(
    ("before", "name", "after"),
    [
        ("DL(ds, 8, False, None, None, 0)", "num_workers", "DL(ds, 8, False, None, None, 4)"),
        ("DL(ds, 8, False, None, None, (0), f)", "num_workers", "DL(ds, 8, False, None, None, 4, f)"),
        ("DL(ds, 8, *rest)", "num_workers", None),
        ("DL(ds, 8, *rest)", "batch_size", "DL(ds, 4, *rest)"),
        ("DL(ds, 8, **rest)", "batch_size", "DL(ds, 4, **rest)"),
        ("DL(ds, num_workers=0, **rest)", "num_workers", "DL(ds, num_workers=4, **rest)"),
        ("DL(ds, num_workers  =\\\n 0,)", "num_workers", "DL(ds, num_workers  =\\\n 4,)"),
        ("DL(ds, 8)", "num_workers", "DL(ds, 8, num_workers=4)"),
    ],
)
def test_set_argument_where_it_stands(before: str, name: str, after: str | None) -> None:
    assert edited(edits.set_argument, before, name, "4") == after


def test_positions_of_another_callee() -> None:
    assert edited(edits.set_argument, "g(a, 2)", "workers", "4", order=("path", "workers")) == "g(a, 4)"
    assert edited(edits.set_argument, "g(a, 2)", "workers", "4", order=()) == "g(a, 2, workers=4)"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(w=1)", "f()"),
        ("f( w=1, )", "f()"),
        ("f(\n    w=1,\n)", "f()"),
        ("f(  # c\n    w=1,\n)", "f(  # c\n    \n)"),
        ("f(a, w=1)", "f(a)"),
        ("f(a, w=1,)", "f(a,)"),
        ("f(w=1, a=2)", "f(a=2)"),
        ("f(w=1, **a)", "f(**a)"),
        ("f(w=1, *a)", "f(*a)"),
        ("f(a, w=(1), b=2)", "f(a, b=2)"),
        ("f(\n    a,\n    w=1,\n    b=2,\n)", "f(\n    a,\n    b=2,\n)"),
        ("f(\n    a,\n    b=2,\n    w=1,\n)", "f(\n    a,\n    b=2,\n)"),
        ("f(\n    a,\n    b=2,\n    w=1\n)", "f(\n    a,\n    b=2\n)"),
        ("f(\n    w=1,\n    b=2,\n)", "f(\n    b=2,\n)"),
        ("f(w=1,\n  b=2)", "f(b=2)"),
        ("f(\n    a,  # A\n    w=1,\n    b=2,\n)", "f(\n    a,  # A\n    b=2,\n)"),
        ("f(\n    a,  # A\n    w=1,  # W\n    b=2,\n)", "f(\n    a,  # A\n    # W\n    b=2,\n)"),
        ("f(\n    a,  # A\n    w=1\n)", "f(\n    a,  # A\n)"),
        ("f(\n    a,  # A\n    w=1)", "f(\n    a,  # A\n    )"),
        ("f(a, w=[  # one\n    1])", None),
        ("f(a)", None),
        ("f(**a)", None),
    ],
)
def test_remove_argument(before: str, after: str | None) -> None:
    assert edited(edits.remove_argument, before, "w") == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(w=1)", "f(worth=1)"),
        ("f(a, w = (1), b=2)", "f(a, worth = (1), b=2)"),
        (
            "f(\n    a,  # A\n    w=[  # one\n        1\n    ],\n)",
            "f(\n    a,  # A\n    worth=[  # one\n        1\n    ],\n)",
        ),
        ("f(a)", None),
        ("f(**a)", None),
    ],
)
def test_rename_argument(before: str, after: str | None) -> None:
    assert edited(edits.rename_argument, before, "w", "worth") == after


def test_an_argument_without_a_name_is_not_renamed() -> None:
    assert edited(edits.rename_argument, "DL(ds, 8)", "batch_size", "size") is None


def test_only_the_last_positional_argument_is_removed() -> None:
    assert edited(edits.remove_argument, "DL(ds, 8, True)", "shuffle") == "DL(ds, 8)"
    assert edited(edits.remove_argument, "DL(ds, 8, True)", "batch_size") is None
    assert edited(edits.remove_argument, "DL(ds, 8, *more)", "batch_size") is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("k = {}", 'k = {"w": 4}'),
        ('k = {"a": 1}', 'k = {"a": 1, "w": 4}'),
        ("k = {'a': 1}", "k = {'a': 1, 'w': 4}"),
        ('k = {"a": (1),}', 'k = {"a": (1), "w": 4,}'),
        ('k = {("a"): (1)}', 'k = {("a"): (1), "w": 4}'),
        ('k = {"w": 0, "a": 1}', 'k = {"w": 4, "a": 1}'),
        ('k = {("w"): (0)}', 'k = {("w"): 4}'),
        ('k = {"w" : 0}', 'k = {"w" : 4}'),
        ('k = {\n    "a": 1,  # A\n}', 'k = {\n    "a": 1,  # A\n    "w": 4,\n}'),
        ('k = {**{"a": 1}}', 'k = {**{"a": 1}, "w": 4}'),
        ("k = {**(b)}", None),
        ('k = {"w": 0, **b}', None),
        ('k = {"a" + b: 1}', None),
        ('k = {"w": 0, "w": 1}', None),
        ('k = {"w": 4}', None),
    ],
)
def test_set_entry(before: str, after: str | None) -> None:
    assert edited(edits.set_entry, before, "w", "4", kind=forms.Dict) == after


def test_replace_a_node() -> None:
    source, facts, call = parse("y = f(a) + 1\n")
    assert edits.apply(source, [edits.replace(source, facts, call.func.at, "g")]) == "y = g(a) + 1\n"


def test_places_in_a_notebook_count_within_the_cell() -> None:
    source, facts, call = parse("import a\n\nx = f(\n    b,\n)\n", cells=(Cell(1, 0), Cell(3, 2)))
    edit = edits.add_argument(source, facts, call, "num_workers", "4")
    assert isinstance(edit, Edit)
    assert (edit.place.cell, edit.place.line, edit.place.column) == (3, 2, 7)
    assert edits.apply(source, [edit]) == "import a\n\nx = f(\n    b,\n    num_workers=4,\n)\n"


class TestApply:
    def both(self, text: str, *names: str) -> str:
        source, facts, call = parse(text)
        made = [edits.add_argument(source, facts, call, name, "1") for name in names]
        return edits.apply(source, [edit for edit in made if isinstance(edit, Edit)])

    def test_two_insertions_at_one_point(self) -> None:
        assert self.both("f(x)", "a", "b") == "f(x, a=1, b=1)"
        assert self.both("f(x,)", "a", "b") == "f(x, a=1, b=1,)"
        assert self.both("f(\n    x,\n)", "a", "b") == "f(\n    x,\n    a=1,\n    b=1,\n)"
        assert self.both("f(\n    x,\n    y\n)", "a", "b") == "f(\n    x,\n    y,\n    a=1,\n    b=1\n)"

    def test_the_same_edit_twice_counts_once(self) -> None:
        assert self.both("f(x)", "a", "a") == "f(x, a=1)"

    def test_insertions_that_would_break_the_call_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"train\.py: edits overlap at 1:3"):
            self.both("f()", "a", "b")
        source, facts, call = parse("f(x)")
        made = [edits.add_argument(source, facts, call, "a", value) for value in "12"]
        with pytest.raises(ValueError, match="overlap"):
            edits.apply(source, [edit for edit in made if isinstance(edit, Edit)])

    def test_overlapping_edits_are_refused(self) -> None:
        source, facts, call = parse("f(g(x))")
        outer = edits.replace(source, facts, call.at, "h()")
        inner = edits.replace(source, facts, call.args[0].at, "y")
        with pytest.raises(ValueError, match="overlap"):
            edits.apply(source, [inner, outer])

    def test_edits_of_other_files_are_ignored(self) -> None:
        source, facts, call = parse("f(x)")
        other = Source("data.py", "/data.py", "f(x)")
        assert edits.apply(source, [edits.replace(other, facts, call.at, "y")]) == "f(x)"


# -- a property over generated layouts

BLANK = st.sampled_from(["", "", " ", "  ", "\n    ", "\n", " # why (\n    ", "  # why\n\n        ", " \\\n  "])
VALUE = st.sampled_from(["1", "(2)", "[3, 4]", "'),('", "g(a, b)", "lambda x: x", "a if b else c", "{'k': 1}", "((5))"])
NAMES = ("num_workers", "pin_memory", "drop_last", "persistent_workers")


@st.composite
def calls(draw: st.DrawFn) -> str:
    positional = [draw(VALUE) for _ in range(draw(st.integers(0, 3)))]
    if draw(st.booleans()) and draw(st.booleans()):
        positional.append("*rest")
    named = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    args = positional + [f"{name}{draw(BLANK)}={draw(BLANK)}{draw(VALUE)}" for name in named]
    if draw(st.booleans()) and draw(st.booleans()):
        args.append("**options")
    parts = [draw(BLANK)]
    for number, arg in enumerate(args):
        last = number == len(args) - 1
        comma = "," if not last or draw(st.booleans()) else ""
        parts += arg, draw(BLANK), comma, draw(BLANK)
    return f"if True:\n    x = (f)({''.join(parts)})  # end\n"


def arguments(text: str) -> tuple[list[str], dict[str | None, str]]:
    call = next(
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and ast.unparse(node.func) == "f"
    )
    return [ast.unparse(arg) for arg in call.args], {word.arg: ast.unparse(word.value) for word in call.keywords}


def comments(text: str) -> list[str]:
    return [
        token.string for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT
    ]


@given(calls(), st.sampled_from(NAMES))
def test_edits_keep_everything_else(text: str, name: str) -> None:
    source, facts, call = parse(text)
    positional, named = arguments(text)
    made: list[tuple[Edit | Refused, str | None]] = [
        (edits.add_argument(source, facts, call, name, "7"), "7"),
        (edits.set_argument(source, facts, call, name, "7"), "7"),
        (edits.remove_argument(source, facts, call, name), None),
    ]
    for edit, value in made:
        if isinstance(edit, Refused):
            assert name in named or "*rest" in positional or None in named or value is None
            continue
        after = edits.apply(source, [edit])
        expected = {key: old for key, old in named.items() if key != name}
        if value:
            expected[name] = value
        assert arguments(after) == (positional, expected)
        assert comments(after) == comments(text)
        assert text.count("\\\n") == after.count("\\\n") or value is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{'w': 1}", "{}"),
        ("{'a': 1, 'w': 1}", "{'a': 1}"),
        ("{\n    'w': 1,\n    'a': 1,\n}", "{\n    'a': 1,\n}"),
        ("{'a': 1}", None),
        ("{'w': 1, 'w': 2}", None),
    ],
)
def test_remove_entry(before: str, after: str | None) -> None:
    assert edited(edits.remove_entry, before, "w", kind=forms.Dict) == after


def test_changes_of_one_call_are_one_edit() -> None:
    def all_three(source: Source, facts: ModuleFacts, call: forms.Call) -> Edit | Refused:
        steps = [
            partial(edits.set_argument, name="num_workers", value="0"),
            partial(edits.remove_argument, name="timeout"),
            partial(edits.remove_argument, name="prefetch_factor"),
        ]
        return edits.in_turn(source, facts, call, steps)

    before = "x = DL(\n    ds,\n    num_workers=4,  # é\n    timeout=9,\n    prefetch_factor=2,\n)\n"
    assert edited(all_three, before) == "x = DL(\n    ds,\n    num_workers=0,  # é\n)\n"
    assert edited(all_three, "DL(ds, num_workers=4, timeout=9, prefetch_factor=2)") == "DL(ds, num_workers=0)"
    assert edited(all_three, "DL(ds, num_workers=4, timeout=9)") is None
