"""Whole lines that fixes add, move or wrap."""

from __future__ import annotations

import pytest

from dlcheck import edits
from dlcheck.checks import moving
from dlcheck.edits import Refused
from dlcheck.facts import extract
from dlcheck.findings import Edit
from dlcheck.model.scopes import Module
from dlcheck.source import Source


def module_of(text: str) -> Module:
    source = Source("train.py", "/train.py", text)
    return Module("train", source, extract(source))


def after(module: Module, *changes: Edit | Refused) -> str:
    done = [change for change in changes if isinstance(change, Edit)]
    assert len(done) == len(changes), changes
    return edits.apply(module.source, done)


def refusal(changes: list[Edit | Refused]) -> str:
    return next(change.reason for change in changes if isinstance(change, Refused))


def hoisted(text: str, *numbers: int) -> list[Edit | Refused]:
    module = module_of(text)
    (loop,) = module.loops
    return moving.hoist(module.source, module.facts, [loop.blocks["body"][n] for n in numbers or (0,)], loop)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for e in x:\n    a = f()\n    g(a)\n", "a = f()\nfor e in x:\n    g(a)\n"),
        (
            "# Epochs\nfor e in x:  # all\n    # The loader\n    a = f(\n        1,\n    )  # made\n\n    g(a)\n",
            "# The loader\na = f(\n    1,\n)  # made\n# Epochs\nfor e in x:  # all\n    g(a)\n",
        ),
        ("for e in x:\n\ta = f(\n1)\n\tg(a)\n", "a = f(\n1)\nfor e in x:\n\tg(a)\n"),
        (
            "def h():\n    for e in x:\n        a = f()\n        g(a)\n",
            "def h():\n    a = f()\n    for e in x:\n        g(a)\n",
        ),
    ],
)
def test_a_statement_is_moved_out_of_a_loop(text: str, expected: str) -> None:
    module = module_of(text)
    assert after(module, *hoisted(text)) == expected


def test_several_statements_keep_their_order() -> None:
    text = "for e in x:\n    a = f()\n    b = g(a)\n    h(b)\n"
    assert after(module_of(text), *hoisted(text, 0, 1)) == "a = f()\nb = g(a)\nfor e in x:\n    h(b)\n"


def test_the_last_statement_leaves_no_empty_lines() -> None:
    text = "for e in x:\n    h()\n\n    a = f()\nb()\n"
    assert after(module_of(text), *hoisted(text, 1)) == "a = f()\nfor e in x:\n    h()\nb()\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("for e in x:\n    a = f(); g(a)\n", "several statements stand on one line"),
        ("for e in x: a = f()\n", "several statements stand on one line"),
        ("for e in x:\n    a = f()\n", "the loop does nothing else"),
        ("for e in x:\n    a = '''\n    one'''\n    g(a)\n", "a string over several lines would change"),
        ("for e in x:\n    pass\n    b = 2; c\n", "several statements stand on one line"),
    ],
)  # fmt: skip
def test_what_cannot_be_moved_is_refused(text: str, reason: str) -> None:
    assert refusal(hoisted(text, *((1,) if "b = 2" in text else ()))) == reason


def test_backslashes_move_and_strings_stay() -> None:
    text = "for e in x:\n    a = f + \\\n        g\n    h(a)\n"
    assert after(module_of(text), *hoisted(text)) == "a = f + \\\n    g\nfor e in x:\n    h(a)\n"
    assert moving.reindented("    '''a\n    b'''\n", "    ", "") == Refused("a string over several lines would change")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for e in x:  # epochs\n    # one\n    a()\n", "for e in x:  # epochs\n    s(e)\n    # one\n    a()\n"),
        ("for e in (\n    x\n):\n    a()\n", "for e in (\n    x\n):\n    s(e)\n    a()\n"),
    ],
)
def test_a_statement_is_put_first(text: str, expected: str) -> None:
    module = module_of(text)
    assert after(module, moving.insert_first(module.source, module.facts, module.loops[0], ["s(e)"])) == expected


def test_a_body_beside_its_head_has_no_first_line() -> None:
    module = module_of("for e in x: a()\n")
    assert isinstance(moving.insert_first(module.source, module.facts, module.loops[0], ["s(e)"]), Refused)


def test_lines_above_and_below_a_block() -> None:
    module = module_of("# epochs\nfor e in x:\n    a(\n        1\n    )  # one\n    # end\n\nb()\n")
    loop = module.loops[0]
    above = moving.insert_above(module.source, module.facts, loop, ["s = 0"])
    below = moving.insert_below(module.source, module.facts, loop, ["t = s"])
    assert after(module, above, below) == (
        "s = 0\n# epochs\nfor e in x:\n    a(\n        1\n    )  # one\n    # end\nt = s\n\nb()\n"
    )


def test_a_decorator_stands_next_to_its_function() -> None:
    module = module_of("class A:\n    @staticmethod\n    def f():\n        pass\n")
    change = moving.add_decorator(module.source, module.facts, module.functions[0], "torch.no_grad()")
    assert after(module, change) == ("class A:\n    @staticmethod\n    @torch.no_grad()\n    def f():\n        pass\n")


FUNCTION = ["def one():", "    return 1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import os\n\nx = 1\ny = one()\n", "import os\n\nx = 1\n\n\ndef one():\n    return 1\n\n\ny = one()\n"),
        (
            "import os\n\n\n# A\n@deco\nclass A:\n    pass\n\n\ny = one()\n",
            "import os\n\n\ndef one():\n    return 1\n\n\n# A\n@deco\nclass A:\n    pass\n\n\ny = one()\n",
        ),
        ("def one():\n    return 1\n\n\ny = one()\n", "def one():\n    return 1\n\n\ny = one()\n"),
    ],
)
def test_a_function_is_added_once(text: str, expected: str) -> None:
    module = module_of(text)
    assert after(module, *moving.add_function(module, "one", FUNCTION, module.scope.body[-1])) == expected


def test_a_name_that_is_taken_is_no_name_for_a_function() -> None:
    module = module_of("def f(one):\n    pass\n\n\ny = 1\n")
    assert (
        refusal(moving.add_function(module, "one", FUNCTION, module.scope.body[-1])) == "`one` is something else here"
    )


def wrapped(text: str, number: int) -> list[Edit | Refused]:
    module = module_of(text)
    return moving.wrap_tail(module, module.scope.body[number], "main")


def test_the_tail_of_a_script_becomes_a_function() -> None:
    text = "import os\n# go\nx = f()\n\nfor e in x:\n  g(e)\n  # end\n# bye\n"
    assert after(module_of(text), *wrapped(text, 1)) == (
        "import os\n\n\ndef main():\n  # go\n  x = f()\n\n  for e in x:\n    g(e)\n    # end\n  # bye\n\n\n"
        'if __name__ == "__main__":\n  main()\n'
    )


def test_a_tail_with_a_text_over_several_lines_stays() -> None:
    assert refusal(wrapped('import os\nx = """\none\n"""\n', 1)) == "a string over several lines would change"
