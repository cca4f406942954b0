"""Comments that silence findings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcheck import pages, suppress
from dlcheck.files import to_source
from dlcheck.findings import Finding, Place
from dlcheck.source import Cell, Source

PAGES = pages.load()
ENABLED = frozenset(PAGES)


def source(text: str) -> Source:
    return Source("a.py", "/p/a.py", text)


def finding(code: str, first: int, last: int | None = None, cell: int | None = None) -> Finding:
    page = PAGES[code]
    place = Place("a.py", last or first, 1, last or first, 2, cell)
    return Finding(code, page.name, "warning", "high", place, "", statement_lines=(first, last or first))


def outcome(text: str, *findings: Finding) -> tuple[list[str], list[str]]:
    """The codes of the findings that are left, and the messages about comments."""
    where = source(text)
    found = suppress.markers(where, PAGES)
    left = suppress.silence(findings, where, found)
    told = suppress.unused(where, found, ENABLED, PAGES["DLC002"])
    return [one.code for one in left], [f"{one.place.line}:{one.place.column} {one.message}" for one in told]


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("x = f()  # dlcheck: ignore[DLC203]\n", 1, 1),
        ("x = f()  # dlcheck: ignore[worker-options-without-workers] it raises on purpose\n", 1, 1),
        ("x = f()  # dlcheck:ignore[ DLC203 ,]\n", 1, 1),
        ("x = f()  # type: ignore  # dlcheck: ignore[DLC203]  # noqa: E501\n", 1, 1),
        ("# dlcheck: ignore[DLC203]\nx = f()\n", 2, 2),
        ("# dlcheck: ignore[DLC203]\n# and why\nx = f()\n", 3, 3),
        ("if a:\n    # dlcheck: ignore[DLC203]\n    x = f()\n", 3, 3),
        ("x = f(\n    a,  # dlcheck: ignore[DLC203]\n    b,\n)\n", 1, 4),
        ("x = f(\n    a,\n    # dlcheck: ignore[DLC203]\n    b,\n)\n", 1, 4),
        ("x = f(\n    a,\n)  # dlcheck: ignore[DLC203]\n", 1, 3),
        ("import os\n\n# dlcheck: file-ignore[DLC203]\nx = f()\n\n\n\ny = 1\n", 8, 8),
        ("x = f()  # noqa: DLC203\n", 1, 1),
        ("x = f()  # NOQA:E501,dlc203 why\n", 1, 1),
        ("x = f()  # noqa: E501 DLC203\n", 1, 1),
    ],
)
def test_silenced(text: str, first: int, last: int) -> None:
    assert outcome(text, finding("DLC203", first, last)) == ([], [])


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("x = f()  # dlcheck: ignore[DLC101]\n", 1),
        ("y = 1  # dlcheck: ignore[DLC203]\nx = f()\n", 2),
        ("# dlcheck: ignore[DLC203]\n\nx = f()\n", 3),
        ("x = f()\n# dlcheck: ignore[DLC203]\n", 1),
        ("x = f('# dlcheck: ignore[DLC203]')\n", 1),
        ('x = """\n# dlcheck: ignore[DLC203]\n"""\n', 1),
        ("x = f()  # noqa\n", 1),
        ("# noqa: DLC203\nx = f()\n", 2),
        ("x = f()  # noqa: E501\n", 1),
        ("x = f()  # see dlcheck: ignore[DLC203]\n", 1),
    ],
)
def test_not_silenced(text: str, first: int) -> None:
    assert outcome(text, finding("DLC203", first))[0] == ["DLC203"]


def unused(comment: str, code: str, variant: str = "", reason: str = "") -> str:
    return pages.words(PAGES["DLC002"], variant, comment=comment, code=code, reason=reason)[0]


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("x = 1  # dlcheck: ignore[DLC203]\n", 8),
        ("x = 1  # noqa: DLC203\n", 8),
        ("# dlcheck: file-ignore[DLC203] why\n", 1),
    ],
)
def test_unused(text: str, column: int) -> None:
    comment = text[column - 1 :].rstrip()
    assert outcome(text)[1] == [f"1:{column} {unused(comment, 'DLC203')}"]


@pytest.mark.parametrize(
    "text",
    [
        "x = 1  # noqa: E501\n",
        "x = 1  # dlcheck: ignore[DLC203, DLC002] an older torch needs it\n",
        "'# dlcheck: ignore[DLC203]'\n",
    ],
)
def test_not_unused(text: str) -> None:
    assert outcome(text)[1] == []


def test_one_of_two_is_unused() -> None:
    left, told = outcome("x = 1  # dlcheck: ignore[DLC203, DLC411, DLC301]\n", finding("DLC203", 1))
    assert left == []
    assert told == ["1:8 " + unused("# dlcheck: ignore[DLC203, DLC411, DLC301]", "DLC411 or DLC301")]


def test_of_rules_that_did_not_run_nothing_is_known() -> None:
    where = source("x = 1  # dlcheck: ignore[DLC203]\n")
    assert not suppress.unused(where, suppress.markers(where, PAGES), {"DLC002", "DLC101"}, PAGES["DLC002"])


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("# dlcheck: ignore", "it names no rule: write `# dlcheck: ignore[DLC101]`"),
        ("# dlcheck: ignore DLC203, DLC501", "brackets are missing: write `# dlcheck: ignore[DLC203, DLC501]`"),
        ("# dlcheck: ignore[]", "it names no rule"),
        ("# dlcheck: file-ignore", "write `# dlcheck: file-ignore[DLC101]`"),
        (
            "# dlcheck: ingore[DLC203]",
            "`ingore` is neither `ignore[...]` nor `file-ignore[...]`; did you mean `ignore`?",
        ),
        ("# dlcheck: ignore[DLC2O3]", "there is no rule `DLC2O3`; did you mean `DLC"),
        ("# dlcheck: ignore[worker-options-without-worker]", "did you mean `worker-options-without-workers`?"),
        ("# dlcheck: ignore[DLC203", "brackets are missing: write `# dlcheck: ignore[DLC203]`"),
        ("# noqa: DLC999", "there is no rule `DLC999`"),
    ],
)
def test_malformed(comment: str, words: str) -> None:
    left, told = outcome(f"x = f()  {comment}\n", finding("DLC203", 1))
    assert left == ["DLC203"]
    (message,) = told
    assert words in message
    assert message.startswith("1:10 " + unused(comment, "", "malformed"))


def test_cells_of_a_notebook_are_apart() -> None:
    text = "x = f()  # dlcheck: ignore[DLC203]\nx = f()\n"
    where = Source("nb.ipynb", "/p/nb.ipynb", text, cells=(Cell(1, 0), Cell(2, 1)))
    found = suppress.markers(where, PAGES)
    left = suppress.silence([finding("DLC203", 1, cell=1), finding("DLC203", 1, cell=2)], where, found)
    assert [one.place.cell for one in left] == [2]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends(newline: str) -> None:
    lines = ("a = 1", "\fb = 'é\u2028'  # dlcheck: ignore[DLC203]", "c = 3")
    left, told = outcome(newline.join(lines), finding("DLC203", 2))
    assert (left, told) == ([], [])
    assert outcome(newline.join(lines), finding("DLC203", 3))[0] == ["DLC203"]


def test_text_that_does_not_tokenize() -> None:
    left, _ = outcome("x = (  # dlcheck: ignore[DLC001]\n", finding("DLC001", 1))
    assert left == []


def test_offsets_are_those_of_the_text() -> None:
    where = to_source("/p/a.py", "é = 'ü'  # one\r\nif é:\n\ty = 2  # two é\n".encode())
    for comment in suppress.comments(where.text):
        assert where.text[comment.start : comment.start + len(comment.text)] == comment.text
    assert [comment.text for comment in suppress.comments(where.text)] == ["# one", "# two é"]


@given(st.text("#dlcheck: ignore[DLC203],\n\r'\"()\\x=1", max_size=80))
def test_any_text(text: str) -> None:
    where = source(text)
    for comment in suppress.comments(text):
        assert text[comment.start : comment.start + len(comment.text)] == comment.text
    suppress.unused(where, suppress.markers(where, PAGES), ENABLED, PAGES["DLC002"])
