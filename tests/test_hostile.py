"""No text breaks the reader: what libcst could crash or hang on is refused before it sees it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcheck.facts import Unreadable, extract
from dlcheck.facts.forms import ModuleFacts
from dlcheck.files import UnusableError, to_source
from dlcheck.source import Source


def read(text: str) -> ModuleFacts:
    return extract(Source("a.py", "a.py", text))


# Python expressions: the texts are too long to be arguments of a process.
HOSTILE: dict[str, str] = {
    "nested lists": "'x = ' + '[' * 3000 + ']' * 3000",
    "open lists": "'x = ' + '[' * 3000",
    "nested parentheses": "'x = ' + '(' * 10_000 + ')' * 10_000",
    "nested braces": "'x = ' + '{' * 3000 + '}' * 3000",
    "attributes": "'a' + '.b' * 20_000",
    "elif": r"'if a:\n    b\n' + 'elif a:\n    b\n' * 10_000",
    "sum": "'x = ' + ' + '.join(['a'] * 5000)",
    "powers": "'x = ' + ' ** '.join(['a'] * 5000)",
    "and": "'x = ' + ' and '.join(['a'] * 20_000)",
    "or": "'x = ' + ' or '.join(['a'] * 5000)",
    "comparison": "'x = ' + ' < '.join(['a'] * 20_000)",
    "methods": "'a' + '.b().b()' * 1000",
    "called calls": "'a' + '()' * 5000",
    "subscripts": "'a' + '[0]' * 5000",
    "not": "'x = ' + 'not ' * 5000 + 'a'",
    "minus": "'x = ' + '-' * 5000 + 'a'",
    "lambdas": "'x = ' + 'lambda: ' * 3000 + 'a'",
    "conditionals": "'x = ' + 'a if b else ' * 5000 + 'c'",
    "awaits": r"'async def f():\n    ' + 'await ' * 3000 + 'a'",
    "blocks": r"''.join(' ' * i + 'if a:\n' for i in range(99)) + ' ' * 99 + 'b'",
    "deeper blocks": r"''.join(' ' * i + 'if a:\n' for i in range(3000)) + ' ' * 3000 + 'b'",
    "nested functions": r"''.join(' ' * i + 'def f():\n' for i in range(150)) + ' ' * 150 + 'b'",
    "nested f-strings": r"""'x = ' + 'f"{' * 1000 + 'a' + '}"' * 1000""",
    "alternating f-strings": r"""'x = ' + 'f"{f\'{' * 50 + 'a' + '}\'}"' * 50""",
    "nested formats": r"""'x = f"' + '{a:' * 500 + '}' * 500 + '"'""",
    "open f-string": r"""'x = f"' + '{' * 5001 + '"'""",
    "f-string of many parts": r"""'x = f"' + '{a}' * 20_000 + '"'""",
    "decorators": r"'@a\n' * 20_000",
    "targets": "' = '.join(['a'] * 5000)",
    "strings": r"""'x = ' + '"a" ' * 5000""",
    "null": r"'a = 1\0\n'",
    "Python 2": r"'print 1\n'",
    "open string": "'x = \"'",
    "open triple quotes": r"'x = \'\'\'' + 'a\n' * 50_000",
    "backslash": r"'x = \\'",
    "dedent": r"'if a:\n        b\n    c\n'",
    "tabs and spaces": r"'if a:\n\tb\n        c\n'",
    "surrogate": r"'a = \ud800\n'",
    "surrogate in a string": r"""'a = "\ud800"\n'""",
    "control": r"'\x1a'",
    "replacement": r"'\ufffd = 1'",
    "long number": "'x = ' + '9' * 100_000",
    "long hexadecimal": "'x = 0x' + 'f' * 100_000",
    "long list": "'x = [' + 'a,' * 50_000 + ']'",
    "long line": "'a;' * 20_000",
    "long comment": "'# ' + 'x' * 1_000_000",
    "long tuple of calls": "'x = ' + 'f(a),' * 10_000",
    "walrus": "'x = ' + '(a := ' * 200 + '1' + ')' * 200",
    "comprehension": "'x = [a ' + 'for a in b ' * 2000 + ']'",
    "conditions": "'x = [a for a in b ' + 'if c ' * 2000 + ']'",
    "patterns": r"'match x:\n case ' + '[' * 500 + ']' * 500 + ': pass'",
    "patterns of classes": r"'match x:\n case ' + 'A(' * 500 + ')' * 500 + ': pass'",
    "or patterns": r"'match x:\n case ' + ' | '.join(['1'] * 5000) + ': pass'",
    "dotted import": "'import ' + 'a.' * 5000 + 'a'",
    "dotted decorator": r"'@' + 'a.' * 5000 + 'a\ndef f(): pass'",
    "with items": "'with ' + ', '.join(['a'] * 3000) + ': pass'",
    "annotations": "'def f(a: ' + 'b[' * 500 + ']' * 500 + '): pass'",
    "stars": "'x = ' + '*' * 3000 + 'a'",
    # CPython older than 3.12 does not read these: libcst is asked.
    "newer: nested lists": "'type A = ' + '[' * 3000 + ']' * 3000",
    "newer: attributes": "'type A = a' + '.b' * 20_000",
    "newer: elif": r"'type A = a\nif a:\n    b\n' + 'elif a:\n    b\n' * 10_000",
    "newer: not": "'type A = ' + 'not ' * 5000 + 'a'",
    "newer: and": "'type A = ' + ' and '.join(['a'] * 5000)",
    "newer: conditionals": "'type A = ' + 'a if b else ' * 5000 + 'c'",
    "newer: lambdas": "'type A = ' + 'lambda: ' * 3000 + 'a'",
    "newer: strings": r"""'type A = ' + '"a" ' * 5000""",
    "newer: lambdas of arguments": "'type A = ' + 'lambda a, b: ' * 3000 + 'a'",
    "longer strings": r"""'x = ' + '"a" ' * 50_000""",
    "longer comprehension": "'x = [a ' + 'for a in b ' * 20_000 + ']'",
    "longer import": "'import ' + 'a.' * 50_000 + 'a'",
    "longer import from": "'from ' + 'a.' * 50_000 + 'a import b'",
    "longer or pattern": r"'match x:\n case ' + ' | '.join(['1'] * 20_000) + ': pass'",
    "mixed chain": "'x = ' + 'a and b or ' * 3000 + 'c'",
    "comparison of calls": "'x = ' + ' < '.join(['f(a)'] * 5000)",
    "newer: in": "'type A = ' + ' in '.join(['a'] * 5000)",
    "newer: for": "'type A = [a ' + 'for a in b ' * 2000 + ']'",
    "newer: blocks": r"'type A = a\n' + ''.join(' ' * i + 'if a:\n' for i in range(99)) + ' ' * 99 + 'b'",
    "newer: nested functions": r"'type A = a\n' + ''.join(' ' * i + 'def f():\n' for i in range(99)) + ' ' * 99 + 'b'",
}  # fmt: skip

READER = """
import time
from dlcheck.facts import Unreadable, extract
from dlcheck.source import Source
for name, expression in {texts}.items():
    print(name, flush=True)  # the last word of a process that crashes
    text = eval(expression)
    began = time.process_time()
    try:
        extract(Source("a.py", "a.py", text))
    except Unreadable as error:
        assert error.line >= 1 and error.column >= 1 and error.message, error
    seconds = time.process_time() - began
    assert seconds < 15, (name, seconds)
print("all")
"""
SHARES = 4


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_hostile_text_is_read_or_refused(share: int) -> None:
    script = READER.format(texts=dict(list(HOSTILE.items())[share::SHARES]))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout.split("\n")[-2]) == (0, "all"), done.stderr[-2000:]


REFUSED = (
    "nested lists", "open lists", "nested parentheses", "attributes", "elif", "sum", "methods", "deeper blocks",
    "nested f-strings", "null", "Python 2", "open string", "open triple quotes", "dedent", "tabs and spaces",
)  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_hazard_is_refused(name: str) -> None:
    with pytest.raises(Unreadable):
        read(eval(HOSTILE[name]))


READ = ("decorators", "long list", "long line", "long comment", "blocks", "with items", "f-string of many parts")


@pytest.mark.parametrize("name", READ)
def test_what_is_only_long_is_read(name: str) -> None:
    text = eval(HOSTILE[name])
    assert read(text + "\ndef f(): pass\n" if name == "decorators" else text).spans is not None


@pytest.mark.parametrize(
    ("text", "line", "columns"),
    [
        ("a = 1\nprint 1\n", 2, {1, 7}),
        ("a = 1\nb = (\n", 2, {5}),
        ("é = 1\né é\n", 2, {1, 3}),
        ("a\n\nb = 1\0\n", 3, {6}),
        ("if a:\nb\n", 2, {1}),
    ],
)
def test_place_of_an_error(text: str, line: int, columns: set[int]) -> None:
    with pytest.raises(Unreadable) as caught:
        read(text)
    assert caught.value.line == line
    assert caught.value.column in columns
    assert str(caught.value).startswith(f"{line}:{caught.value.column}: ")


def test_reading_leaves_the_limits_of_the_process_alone() -> None:
    before = sys.getrecursionlimit()
    read("a = 1\n")
    with pytest.raises(Unreadable):
        read("a = (\n")
    assert sys.getrecursionlimit() == before


BYTES = {
    "rot13": b"# coding: rot13\nvzcbeg bf\n",
    "UTF-16": "a = 1\n".encode("utf-16"),
    "no such encoding": b"# coding: nonsense\na\n",
    "not UTF-8": b"a = '\xff'\n",
}


@pytest.mark.parametrize("data", BYTES.values(), ids=BYTES)
def test_bytes_that_are_no_text_are_refused(data: bytes) -> None:
    with pytest.raises(UnusableError):
        to_source("a.py", data)


WORDS = [
    "a",
    "b",
    "1",
    "1.5e3",
    "'x'",
    "f'{a}'",
    "b'x'",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    ";",
    "=",
    "==",
    "+",
    "-",
    "*",
    "**",
    "/",
    "//",
    "@",
    ".",
    "...",
    "->",
    ":=",
    "#",
    "if",
    "else",
    "elif",
    "for",
    "in",
    "while",
    "def",
    "class",
    "return",
    "yield",
    "await",
    "async",
    "lambda",
    "import",
    "from",
    "as",
    "with",
    "try",
    "except",
    "finally",
    "raise",
    "match",
    "case",
    "_",
    "not",
    "and",
    "or",
    "is",
    "global",
    "del",
    "pass",
    "break",
    "type",
    "None",
    "True",
    "é",
    "😀",
    "'",
    '"""',
    "!",
    "$",
    "?",
]
TOKENS = st.sampled_from(
    [*WORDS, " ", "    ", "\n    ", "\n", "\r\n", "\r", "\x0c", "\t", "\\\n", "\0", "\ud800", "\u2028"]
)
TEXTS = st.lists(TOKENS, max_size=30)


@settings(max_examples=300, deadline=None)
@given(TEXTS.map("".join) | TEXTS.map(" ".join) | st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        facts = read(text)
    except Unreadable as refused:
        error = refused
        assert min(error.line, error.column) >= 1
    else:
        spans = list(zip(facts.spans[::2], facts.spans[1::2], strict=True))
        assert all(0 <= start <= end <= len(text) for start, end in spans)
