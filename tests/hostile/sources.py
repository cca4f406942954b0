"""Hostile sources: bytes of single files, by name, and folders in which something is wrong with the files themselves.

What is deep or long takes its size from the caller: the default tests use one that is quickly made, the long ones more.
"""

from __future__ import annotations

import codecs
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

HEAD = "import torch\nfrom torch.utils.data import DataLoader, Dataset\n"
TAIL = """
loader = DataLoader(ds, num_workers=4, pin_memory=True)
for epoch in range(3):
    for batch in loader:
        batch = batch.to("cuda")
"""
GOOD = HEAD + TAIL

# What opens, what stands in the middle, what closes.
NESTED: dict[str, tuple[str, str, str]] = {
    "lists": ("[", "", "]"),
    "parentheses": ("(", "a", ")"),
    "dicts": ("{1: ", "2", "}"),
    "sets": ("{", "1", "}"),
    "calls": ("f(", "", ")"),
    "loaders": ("DataLoader(", "ds", ")"),
    "keywords": ("DataLoader(ds, sampler=", "a", ")"),
    "unpackings": ("f(**", "d", ")"),
    "partials": ("functools.partial(", "f", ")"),
    "subscripts": ("a[", "0", "]"),
    "slices": ("a[1:", "2", "]"),
    "comprehensions": ("[a for a in ", "b", "]"),
    "generators": ("(a for a in ", "b", ")"),
    "lambdas": ("lambda: ", "a", ""),
    "lambdas of defaults": ("lambda a=", "b", ": a"),
    "conditionals": ("a if b else ", "c", ""),
    "conditions": ("a if ", "b", " else c"),
    "not": ("not ", "a", ""),
    "minus": ("-", "a", ""),
    "complement": ("~", "a", ""),
    "powers": ("a ** ", "b", ""),
    "walrus": ("(a := ", "1", ")"),
    "stars": ("[*", "a", "]"),
    "f-strings": ('f"{', "a", '}"'),
    "f-strings in turns": ("f'{f\"{", "a", "}\"}'"),
    "formats": ("{a:", "", "}"),
    "starred calls": ("f(*", "a", ")"),
    "yields": ("(yield ", "a", ")"),
    "attributes": ("(", "a", ").b"),
}
# What is said again and again, with what stands between.
CHAINED: dict[str, tuple[str, str]] = {
    "sum": ("a", " + "),
    "and": ("a", " and "),
    "or": ("a", " or "),
    "comparison": ("a", " < "),
    "in": ("a", " in "),
    "product": ("a", " @ "),
    "shift": ("a", " << "),
    "strings": ('"a"', " "),
    "f-strings": ('f"{a}"', " "),
    "attributes": ("a", "."),
    "methods": ("a()", "."),
    "loaders": ("DataLoader(ds)", ", "),
    "targets": ("a", " = "),
    "moves": ("batch.to('cuda')", "; "),
    "mixed": ("a and b", " or "),
    "lambdas": ("(lambda: a)()", " + "),
    "floor": ("a", " // -"),
}
BLOCKS: dict[str, str] = {
    "if": "if a:",
    "else": "if a: pass\n{indent}else:",
    "for": "for batch in loader:",
    "while": "while a:",
    "with": "with a:",
    "try": "try: pass\n{indent}except a:",
    "def": "def f(loader):",
    "async": "async def f():",
    "class": "class A(Dataset):",
    "match": "match a:\n{indent} case b:",
}


def nested(kind: str, depth: int) -> str:
    opening, middle, closing = NESTED[kind]
    if kind == "formats":
        return 'x = f"' + opening * depth + closing * depth + '"\n'
    if kind == "yields":
        return "def f():\n    x = " + opening * depth + middle + closing * depth + "\n"
    return "x = " + opening * depth + middle + closing * depth + "\n"


def chained(kind: str, length: int) -> str:
    item, link = CHAINED[kind]
    return f"{'' if kind in ('targets', 'moves') else 'x = '}{link.join([item] * length)}\n"


def blocks(kind: str, depth: int) -> str:
    step = 2 if kind == "match" else 1
    lines = (" " * (step * n) + BLOCKS[kind].format(indent=" " * (step * n)) + "\n" for n in range(depth))
    return "".join(lines) + " " * (step * depth) + "pass\n"


def texts(size: int) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of files that are deep or long, of a size."""
    written = {
        **{f"nested {kind}": nested(kind, size) for kind in NESTED},
        **{f"open {kind}": nested(kind, size).partition(NESTED[kind][1] or "\0")[0] for kind in NESTED},
        **{f"chain of {kind}": chained(kind, size * 4) for kind in CHAINED},
        **{f"blocks of {kind}": blocks(kind, min(size, 99)) for kind in BLOCKS},
        **{f"deep blocks of {kind}": blocks(kind, size) for kind in BLOCKS},
        "elif": "if a: pass\n" + "elif a: pass\n" * size,
        "decorators": "@a\n" * size + "def f(): pass\n",
        "parameters": f"def f({', '.join(f'a{n}' for n in range(size))}): pass\n",
        "bases": f"class A({', '.join(f'A{n}' for n in range(size))}): pass\n",
        "chain of classes": "class A0(Dataset): pass\n"
        + "".join(f"class A{n + 1}(A{n}): pass\n" for n in range(size // 4))
        + f"DataLoader(A{size // 4}())\n",
        "chain of functions": "def f0(x): return x\n"
        + "".join(f"def f{n + 1}(x): return f{n}(x)\n" for n in range(size // 4))
        + f"DataLoader(f{size // 4}(ds), num_workers=f{size // 4}(2))\n",
        "chain of names": "a0 = 4\n"
        + "".join(f"a{n + 1} = a{n}\n" for n in range(size))
        + f"DataLoader(ds, num_workers=a{size})\n",
        "imports of itself": "from odd import *\nimport odd\nfrom . import odd\n" * (size // 10),
        "dotted name": f"import {'a.' * size}a\nfrom {'.' * size} import b\n",
        "global": f"def f():\n    global {', '.join(f'a{n}' for n in range(size))}\n",
        "long number": f"x = {'9' * size}{'_9' * size}\ny = 0x{'f' * size}\nz = {'9' * size}j\n",
        "num_workers of many digits": f"DataLoader(ds, num_workers={'9' * size})\n",
        "power of numbers": "DataLoader(ds, num_workers=9 ** 9 ** 9 ** 9, batch_size=1 << 9 ** 12)\n",
        "string of all memory": "DataLoader(ds, num_workers='a' * 10 ** 12, batch_size=len([0] * 10 ** 12))\n",
        "huge range": "for b in range(10 ** 30): DataLoader(ds, batch_size=b)\n",
        "division by zero": "DataLoader(ds, batch_size=1 // 0, num_workers=1 % 0, prefetch_factor=-1 << -1)\n",
        "long string": f"x = '{'a' * size * 100}'\n",
        "long name": f"{'a' * size * 100} = DataLoader(ds, num_workers=4)\n",
        "long comment": f"# {'dlcheck: ignore[DLC101] ' * size}\n",
        "open suppression": f"x = 1  # dlcheck: ignore[{'DLC101, ' * size}\n",
        "long line": "a;" * size * 10 + "\n",
        "many lines": "\n" * size * 100,
        "many statements": "x = 1\n" * size * 10,
    }
    for name, text in written.items():
        yield name, (HEAD + text).encode("utf-8", "surrogatepass")


SYNTAX: dict[str, str] = {
    "Python 2": "print 'a'\nexec 'b' in c\nraise A, 'b'\ntry: pass\nexcept A, b: pass\nx = `a`\ny = 0777\nz = 1 <> 2\n",
    "tabs of Python 2": "if a:\n\tb\n        c\n",
    "a merge conflict": "<<<<<<< HEAD\nx = 1\n=======\nx = 2\n>>>>>>> other\n",
    "a template": "{% for a in b %}\nx = {{ a }}\n{% endfor %}\n",
    "a shell in a notebook": "!pip install torch\n%matplotlib inline\n?x\n",
    "a unified diff": "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-x\n+y\n",
    "HTML": "<!DOCTYPE html><title>404</title>\n",
    "Cython": "cdef int x = 1\ncpdef f(int a): pass\n",
    "newer: type": "type A[T: int = str, *B, **C] = list[T]\n",
    "newer: generic": "def f[T](x: T) -> T: return x\nclass A[T]: pass\n",
    "newer: except": "try: pass\nexcept A, B: pass\n",
    "newer: except star": "try: pass\nexcept* (A, B): pass\n",
    "newer: f-string": 'x = f"{f"{f"{a + "b"}"}"}"\n',
    "newer: template string": 'x = t"{a}"\n',
    "newer: backslash in f-string": "x = f\"{'\\n'.join(a)}\"\n",
    "newer: lazy import": "lazy import torch\n",
    "newer: match": "match a:\n    case {'b': [1, *c], **d} | A(e=1) if f: pass\n",
    "newer: star in index": "x = a[*b]\n",
    "newer: parenthesised with": "with (a as b, c as d,): pass\n",
    "return outside of functions": "return 1\nyield 2\nawait a\nbreak\ncontinue\nnonlocal b\n",
    "names that are no names": "None = 1\nTrue: int = 2\n__debug__ = 3\ndef f(a, a): pass\n",
    "keywords twice": "DataLoader(ds, num_workers=1, num_workers=2)\n",
    "future": "x = 1\nfrom __future__ import annotations, nonsense\nfrom __future__ import braces\n",
    "escapes": 'x = "\\N{no such name}"\ny = b"\\xzz"\nz = "\\u12"\n',
    "odd escapes": 'x = "\\d\\8\\400"\n',
    "soft keywords": "match = case = type = _ = 1\nmatch(case)\ntype(_)\nprint(match, case)\n",
    "names of Unicode": "\ufb01 = \U0001d54f = \xb5 = 1\nDataLoader(\ufb01, \U0001d55fum_workers=4)\n",
    "right to left": "x = 'a\u202e\u2066b'  # \u2067 DataLoader\n",
    "line separators": "x = 'a\u2028b\x0bc\x0cd\x85e\x1ce'\u2029\n",
    "form feeds": "\x0cif a:\n\x0c    b\n  \x0c  c\n",
    "a byte order mark inside": "x = 1\n\ufeffy = 2\n",
    "terminal escapes": "x = '\x1b[2J\x1b]0;owned\x07'  # \x1b[31m \x9b31m\n",
    "workflow commands": "x = '''\n::set-output name=a::b\n::error::c\n##[error]d\n::stop-commands::e\n'''\n",
    "Markdown": "x = '[a](javascript:b)' '<img src=x onerror=c>' '| ` |'\n",
}
ENDS: dict[str, str] = {"lone carriage returns": "\r", "mixed": "\r\n\r\n\n\r", "Windows": "\r\n", "mad": "\n\r"}
CONTROL = [*range(1, 9), *range(14, 32), 11, 12, 127]


def odd_bytes() -> Iterator[tuple[str, bytes]]:
    """Name and bytes of files that are small and odd."""
    for name, text in SYNTAX.items():
        yield name, (HEAD + text).encode()
        yield f"{name}, in the middle of a good file", (GOOD + text + TAIL).encode()
    for name, end in ENDS.items():
        yield f"{name} ends of lines", GOOD.replace("\n", end).encode()
        yield f"{name} ends of lines in strings", f"{HEAD}x = '''a{end}b'''{end}y = 'a\\{end}b'{TAIL}".encode()
    for code in CONTROL:
        yield f"control {code:#04x}", f"{HEAD}x = 1{chr(code)}\ny = '{chr(code)}'\n{TAIL}".encode("latin-1")
    for name, data in {
        "NUL at the start": b"\0" + GOOD.encode(),
        "NUL at the end": GOOD.encode() + b"\0",
        "NUL in a string": f"{HEAD}x = 'a\0b'\n".encode(),
        "NULs only": b"\0" * 4096 + b"import torch, DataLoader",
        "empty": b"",
        "one byte": b"\xff",
        "no end": GOOD.encode().rstrip(),
        "backslash at the end": GOOD.encode() + b"\\",
        "open string": GOOD.encode() + b"x = '",
        "open triple string": GOOD.encode() + b"x = '''" + b"a\n" * 50_000,
        "open bracket": GOOD.encode() + b"x = (" + b"a,\n" * 5_000,
        "random": bytes(range(256)) * 16 + GOOD.encode(),
        "ELF": b"\x7fELF\x02\x01\x01" + bytes(64) + GOOD.encode(),
        "pickle": b"\x80\x04cos\nsystem\n(S'true'\ntR." + GOOD.encode(),
        "LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n# torch DataLoader\n",
        "UTF-16": GOOD.encode("utf-16"),
        "UTF-16 without a mark": GOOD.encode("utf-16-le"),
        "UTF-32": GOOD.encode("utf-32"),
        "UTF-7": codecs.BOM_UTF8 + GOOD.encode("utf-7"),
        "two marks": codecs.BOM_UTF8 * 2 + GOOD.encode(),
        "not UTF-8": GOOD.encode() + b"x = '\xff\xfe'\n",
        "overlong UTF-8": GOOD.encode() + b"x = '\xc0\xaf'\n",
        "surrogates in UTF-8": GOOD.encode() + b"x = '\xed\xa0\x80'\n",
        "cut UTF-8": GOOD.encode() + b"x = '\xf0\x9f\x98",
    }.items():
        yield name, data
    for cookie in (
        "nonsense", "rot13", "hex", "zlib", "base64", "idna", "punycode", "undefined", "unicode_escape",
        "raw_unicode_escape", "utf-16", "utf-32", "utf-7", "latin-1", "ascii", "cp037", "mbcs", "oem", "utf-8-sig",
        "gb18030", "shift_jis", "iso2022_jp", "utf8mb4", "../../etc", "a" * 5000, "string_escape", "aliases",
    ):  # fmt: skip
        for mark in (b"", codecs.BOM_UTF8):
            marked = "behind a mark" if mark else "declared"
            yield f"{cookie[:20]} {marked}", mark + f"# coding: {cookie}\n{GOOD}x = 'é'\n".encode()


def notebooks(size: int) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of notebooks: broken, foreign, enormous."""
    code = GOOD.splitlines(keepends=True)

    def whole(cells: object, **other: object) -> bytes:
        return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5, **other}).encode()

    def cell(source: object, kind: object = "code") -> dict[str, object]:
        return {"cell_type": kind, "metadata": {}, "outputs": [], "execution_count": None, "source": source}

    good = whole([cell(code)])
    odd: dict[str, object] = {
        "null": None, "a number": 1, "a list of numbers": [1, 2], "a dict": {"a": 1}, "lists": [[["a"]]],
        "surrogates": ["x = '\ud800'\n", *code], "NUL": ["x = 1\0\n", *code], "carriage returns": "\r".join(code),
        "magics": ["%%bash\n", "rm -rf /\n"], "a magic in code": ["%time x\n", *code, "!ls {x}\n", "x?\n"],
        "no ends": [line.rstrip("\n") for line in code], "syntax": [*code, "x = (\n"],
        "nesting": [*code, nested("lists", size)], "lines inside of lines": ["a\nb\r\nc\rd", *code],
    }  # fmt: skip
    kinds: tuple[object, ...] = (None, 1, [], "raw", "x")
    no_cells: tuple[object, ...] = (None, 1, "a", {}, {"a": []}, [None], [1], [[]], [""])
    yield from {
        **{f"source of {name}": whole([cell(source), cell(code)]) for name, source in odd.items()},
        **{f"kind of {kind!r}": whole([cell(code, kind), cell(code)]) for kind in kinds},
        **{f"cells of {cells!r}": whole(cells) for cells in no_cells},
        "format 3": json.dumps({"worksheets": [{"cells": [{"cell_type": "code", "input": code}]}]}).encode(),
        "format 99": whole([cell(code)], nbformat=99),
        "format of words": whole([cell(code)], nbformat="four"),
        "another language": whole([cell(code)], metadata={"kernelspec": {"language": "R"}}),
        "metadata of numbers": whole([cell(code)], metadata=[1]),
        "language of numbers": whole([cell(code)], metadata={"kernelspec": 1, "language_info": [1]}),
        "cut": good[: len(good) // 2],
        "two": good + good,
        "UTF-16": good.decode().encode("utf-16"),
        "a mark": codecs.BOM_UTF8 + good,
        "cells twice": good[:-1] + b', "cells": [1]}',
        "source twice": good.replace(b'"source"', b'"source": 1, "source"'),
        "Infinity": good[:-1] + b', "a": Infinity, "b": NaN, "c": 1e999}',
        "deep JSON": b'{"cells": ' + b"[" * size * 10 + b"]" * size * 10 + b', "torch": "DataLoader"}',
        "open JSON": b'{"torch DataLoader": ' * size,
        "long number": b'{"torch DataLoader": ' + b"9" * size * 10 + b"}",
        "empty": b"",
        "Python": GOOD.encode(),
        "many cells": whole([cell(code)] * min(size, 300)),
        "large output": whole([{**cell(code), "outputs": ["a" * size * 1000]}]),
    }.items()


def large(megabytes: int = 5) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of files of some megabytes."""
    size = megabytes << 20
    yield "large list", (HEAD + "x = [\n" + "    1, 2, 3, 4,\n" * (size // 16) + "]\n" + TAIL).encode()
    yield "large string", (HEAD + "x = '''" + "a b c\n" * (size // 6) + "'''\n" + TAIL).encode()
    yield "large comment", (HEAD + "# a\n" * (size // 4) + TAIL).encode()
    yield "large line", (HEAD + "x = '" + "a" * size + "'\n" + TAIL).encode()
    yield "large base64", (HEAD + "x = b'" + "QUJD" * (size // 4) + "'\n" + TAIL).encode()


# Folders. Each function makes one thing in a folder that is there.


def _link_to_nothing(at: Path) -> None:
    (at / "odd.py").symlink_to("nothing.py")


def _link_to_itself(at: Path) -> None:
    (at / "odd.py").symlink_to("odd.py")


def _links_in_a_circle(at: Path) -> None:
    (at / "odd.py").symlink_to("odder.py")
    (at / "odder.py").symlink_to("odd.py")


def _folder_in_itself(at: Path) -> None:
    (at / "package").mkdir()
    (at / "package" / "again").symlink_to("..", target_is_directory=True)
    (at / "package" / "odd.py").write_text(GOOD, encoding="utf-8")


def _folder_called_so(at: Path) -> None:
    (at / "odd.py").mkdir()
    (at / "odd.py" / "__init__.py").write_text(GOOD, encoding="utf-8")
    (at / "odd.ipynb").mkdir()


def _fifo(at: Path) -> None:
    os.mkfifo(at / "odd.py")


def _link_to_a_device(at: Path) -> None:
    (at / "odd.py").symlink_to("/dev/zero")
    (at / "odd.ipynb").symlink_to("/dev/stdin")
    (at / "tty.py").symlink_to("/dev/tty")


def _socket(at: Path) -> None:
    here = os.getcwd()
    os.chdir(at)  # the path of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind("odd.py")
    finally:
        os.chdir(here)


def _giant(at: Path) -> None:
    with open(at / "odd.py", "wb") as stream:
        stream.truncate(1 << 40)  # sparse: it takes no room


def _file_of_the_kernel(at: Path) -> None:
    (at / "odd.py").symlink_to("/proc/self/mem")
    (at / "more.py").symlink_to("/proc/kmsg")


def _unreadable(at: Path) -> None:
    (at / "odd.py").write_text(GOOD, encoding="utf-8")
    (at / "odd.py").chmod(0)
    (at / "closed").mkdir()
    (at / "closed" / "odd.py").write_text(GOOD, encoding="utf-8")
    (at / "closed").chmod(0)


def _ignore_files_that_are_none(at: Path) -> None:
    os.mkfifo(at / ".gitignore")
    (at / "inner").mkdir()
    (at / "inner" / ".gitignore").mkdir()
    (at / "inner" / "odd.py").write_text(GOOD, encoding="utf-8")
    (at / "outer").mkdir()
    (at / "outer" / ".gitignore").write_bytes(b"[\n[!\n\\\n**/**/**/\xff\n" + b"*" * 5000 + b"\n{a,\n[z-a]\n")
    (at / "outer" / "odd.py").write_text(GOOD, encoding="utf-8")


def _deep_folders(at: Path) -> None:
    here = os.getcwd()
    os.chdir(at)  # the whole path is longer than the system takes
    try:
        for _ in range(60):
            os.mkdir("d" * 100)
            os.chdir("d" * 100)
        Path("odd.py").write_text(GOOD, encoding="utf-8")
    finally:
        os.chdir(here)


def _git_that_is_none(at: Path) -> None:
    (at / ".git").write_bytes(b"gitdir: /nowhere\0\n")
    (at / "odd.py").write_text(GOOD, encoding="utf-8")


FOLDERS: dict[str, Callable[[Path], None]] = {
    function.__name__.strip("_").replace("_", " "): function
    for function in (
        _link_to_nothing, _link_to_itself, _links_in_a_circle, _folder_in_itself, _folder_called_so, _fifo,
        _link_to_a_device, _socket, _giant, _file_of_the_kernel,
        _unreadable, _ignore_files_that_are_none, _deep_folders,
        _git_that_is_none,
    )
}  # fmt: skip

# Names that a file system takes and that a terminal, a log or a format must not take as they are.
NAMES: tuple[bytes, ...] = (
    b"new\nline.py", b"return\rover.py", b"tab\tbed.py", b"'single'.py", b'"double".py', b"back`tick`.py", b"$(id).py",
    b"a;b&c|d.py", b"back\\slash.py", b"per%cent%0A.py", b"colon:12:3.py", b"comma,a=b.py", b"<a href=x>.py",
    b"[a](b).py",
    b"\x1b[2J\x1b]0;owned\x07.py", b"\x9b31m.py", b"\xff\xfe.py", b"\xed\xa0\x80.py", b"a\n::error::b.py",
    b"\n##[set-output name=a]b.py", b"]]>.py", b"&amp;.py", b"-rf.py", b"--fix.py", b" blank .py",
    b"\xe2\x80\xae.yp.py",
    b"\x01\x02\x7f.py", "\u2028line.py".encode(), "é\U0001f600.py".encode(), b"a" * 250 + b".py", b".py", b"..py",
    b"{{ a }}.py", b"%s%n.py", b"con.py", b"\xc2\x85next.py", b"::stop-commands::x.py",
)  # fmt: skip


def named_oddly(folder: Path, data: bytes) -> list[bytes]:
    """Files with these bytes under all odd names that the file system takes; their names."""
    made = []
    for name in NAMES:
        try:
            with open(os.path.join(os.fsencode(folder), name), "xb") as stream:
                stream.write(data)
        except (OSError, ValueError):
            continue
        made.append(name)
    assert len(made) > len(NAMES) // 2 or sys.platform in ("win32", "darwin")
    return made
