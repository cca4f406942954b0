"""What fixes are put together from: imports, statements, methods, calls behind expressions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dlcheck import edits
from dlcheck.checks import mending
from dlcheck.edits import Refused
from dlcheck.facts import extract, forms
from dlcheck.findings import Edit
from dlcheck.model.flow import links_of
from dlcheck.model.scopes import Link, Module
from dlcheck.source import Source


def module_of(text: str) -> Module:
    source = Source("train.py", "/train.py", text)
    return Module("train", source, extract(source))


def after(module: Module, *changes: Edit | Refused) -> str:
    done = [change for change in changes if isinstance(change, Edit)]
    assert len(done) == len(changes), changes
    return edits.apply(module.source, done)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\n", "import os\n\nx = 1\n"),
        ('"""Words."""\n\nx = 1\n', '"""Words."""\n\nimport os\n\nx = 1\n'),
        ("import json\nimport sys\n", "import json\nimport os\nimport sys\n"),
        ("import sys\n", "import os\nimport sys\n"),
        ("from io import BytesIO\n", "import os\nfrom io import BytesIO\n"),
        ("import torch\n", "import os\n\nimport torch\n"),
        ("from __future__ import annotations\n", "from __future__ import annotations\n\nimport os\n"),
        ("import os\n", "import os\n"),
    ],
)
def test_an_import_takes_its_place(text: str, expected: str) -> None:
    module = module_of(text)
    assert after(module, *mending.import_edits(module, "os")) == expected


def test_a_name_that_is_something_else_is_not_imported() -> None:
    (change,) = mending.import_edits(module_of("os = 3\n"), "os")
    assert change == Refused("`os` is something else here")


def test_the_name_of_a_library_is_that_of_the_module() -> None:
    assert mending.alias_of(module_of("import numpy as N\n"), "numpy", "np") == ("N", [])
    module = module_of("import torch\n")
    name, changes = mending.alias_of(module, "numpy", "np")
    assert name == "np"
    assert after(module, *changes) == "import numpy as np\nimport torch\n"


def _use(module: Module) -> Link:
    return next(
        link for scope in (module.scope, *module.functions) for link in links_of(scope) if "use" in link.changes
    )


TAKEN = "`torch` is something else here"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch\nuse = 1\n", ""),
        ("import torch.nn\nuse = 1\n", ""),
        ("import sys\nsys.path.append('x')\nimport torch\n\ndef f():\n    use = 1\n", ""),
        ("if TYPE_CHECKING:\n    import torch\nuse = 1\n", "import torch\n"),
        ("def f():\n    use = 1\nif __name__ == '__main__':\n    import torch\n", "import torch\n"),
        ("def f():\n    use = 1\nimport torch\n", "import torch\n"),
        ("try:\n    import torch\nexcept ImportError:\n    pass\nuse = 1\n", "`torch` may be missing here"),
        ("try:\n    import torch\nexcept ImportError:\n    torch = None\nuse = 1\n", "`torch` may be missing here"),
        ("import torch\ntorch = wrap(torch)\nuse = 1\n", TAKEN),
        ("import torch\ndef f(torch):\n    use = 1\n", TAKEN),
        ("def f():\n    use = 1\n    import torch\n", "`torch` is imported inside the function"),
        ("def f():\n    use = 1\ndef g():\n    global torch\n    import torch\n", TAKEN),
        ("def f():\n    use = 1\ndef g():\n    import torch\n", "import torch\n"),
    ],
)
def test_an_import_counts_where_it_has_certainly_run(text: str, expected: str) -> None:
    module = module_of(text)
    name, changes = mending.alias_of(module, "torch", "torch", _use(module))
    assert name == "torch"
    told = [change.reason if isinstance(change, Refused) else change.replacement.strip("\n") for change in changes]
    assert told == ([expected.strip("\n")] if expected else [])
    edits_only = [change for change in changes if isinstance(change, Edit)]
    assert not edits_only or edits.apply(module.source, edits_only).lstrip().startswith("import torch\n")


def test_a_statement_below_the_imports_needs_its_name_there() -> None:
    module = module_of("import os\nos.environ['A'] = '1'\nimport cv2\n")
    refused = mending.below_imports(module, "cv2.setNumThreads(0)", "cv2")
    assert refused == Refused("`cv2` is not imported at the top of the file")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from a.b import C\n", "from a.b import A, C, D\n"),
        ("from a.b import Z  # last\n", "from a.b import A, D, Z  # last\n"),
        ("from a.b import (\n    B,\n    E,\n)\n", "from a.b import (\n    A,\n    B,\n    D,\n    E,\n)\n"),
        ("from a.b import A, D as E\n", "from a.b import A, D as E\n"),
        ("from a.d import D\nfrom a.b import A\n", "from a.d import D\nfrom a.b import A\n"),
        ("import a\n\nx = 1\n", "import a\nfrom a.b import A, D\n\nx = 1\n"),
        ("try:\n    from a.b import C\nexcept ImportError:\n    C = None\n", None),
    ],
)
def test_names_are_added_to_the_import_of_their_package(text: str, expected: str | None) -> None:
    module = module_of(text)
    names, changes = mending.imported_names(module, "a.b", ["D", "A"], ["a.d"])
    assert names == ["E" if "as E" in text else "D", "A"]
    mended = after(module, *changes)
    assert mended == (expected or "from a.b import A, D\n\n" + text)


def test_a_name_that_is_something_else_is_not_added() -> None:
    _, changes = mending.imported_names(module_of("class A: ...\n"), "a.b", ["A"])
    assert changes == [Refused("`A` is something else here")]


BODY = "def f():\n    a = 1  # one\n    b = 2\n"
Change = Callable[[Module], "Edit | Refused"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda m: mending.replace_statement(m.source, m.facts, _body(m)[0], ["a = 3", "c = 4"]),
            "def f():\n    a = 3  # one\n    c = 4\n    b = 2\n",
        ),
        (lambda m: mending.remove_statement(m.source, m.facts, _body(m)[0]), "def f():\n    b = 2\n"),
        (
            lambda m: mending.insert_before(m.source, m.facts, _body(m)[1], ["c = 4"]),
            "def f():\n    a = 1  # one\n    c = 4\n    b = 2\n",
        ),
        (
            lambda m: mending.insert_after(m.source, m.facts, _body(m)[0], ["c = 4"]),
            "def f():\n    a = 1  # one\n    c = 4\n    b = 2\n",
        ),
    ],
)
def test_statements_come_and_go(change: Change, expected: str) -> None:
    module = module_of(BODY)
    assert after(module, change(module)) == expected


def _body(module: Module) -> list[Link]:
    return module.functions[0].body


def test_the_only_statement_of_a_block_becomes_pass() -> None:
    module = module_of("def f():\n    a = 1\n")
    (only,) = _body(module)
    assert after(module, mending.remove_statement(module.source, module.facts, only)) == "def f():\n    pass\n"


def test_crowded_lines_are_left_alone() -> None:
    module = module_of("def f():\n    a = 1; b = 2\n")
    assert isinstance(mending.remove_statement(module.source, module.facts, _body(module)[0]), Refused)
    assert isinstance(mending.insert_before(module.source, module.facts, _body(module)[1], ["c = 3"]), Refused)


def test_methods_are_added_with_the_indentation_of_their_class() -> None:
    module = module_of("class A:\n\tdef f(self):\n\t\treturn 1\n\n\tx = 2\n")
    change = mending.add_methods(
        module.source, module.facts, module.classes[0].functions["f"], [("def g(self):", "    return 2")]
    )
    assert after(module, change) == (
        "class A:\n\tdef f(self):\n\t\treturn 1\n\n\tdef g(self):\n\t\treturn 2\n\n\tx = 2\n"
    )


@pytest.mark.parametrize(("text", "expected"), [("x[0]", "x[0].clone()"), ("a + b", "(a + b).clone()")])
def test_a_call_stands_behind_the_whole_expression(text: str, expected: str) -> None:
    module = module_of(f"{text}\n")
    stmt = module.scope.body[0].stmt
    assert isinstance(stmt, forms.Do)
    assert after(module, mending.add_call(module.source, module.facts, stmt.value, ".clone()")) == f"{expected}\n"
