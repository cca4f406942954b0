"""What CPython's parser says of a file is what libcst says, and libcst has the last word."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_pages import programs

from dlcheck import engine, facts, pages
from dlcheck.config import Config
from dlcheck.facts import Differs, ModuleFacts, Unreadable, extract, forms, quick, sketch
from dlcheck.files import decode
from dlcheck.findings import Finding
from dlcheck.source import Source

ROOT = Path(__file__).resolve().parent.parent
STDLIB = Path(sysconfig.get_path("stdlib"))
SAMPLE = ("ast", "functools", "typing", "tarfile")

LOADER = "from torch.utils.data import DataLoader\n"
FAULTY = LOADER + "def load(data):\n    return DataLoader(data, persistent_workers=True)\n"

# Each line is a program; those whose syntax the running Python does not know are read by libcst alone.
PROGRAMS = r'''
x = a and b and c or d and (e and f) or not g
x = a < b <= c is not d not in e != f
x = (a, (b), ((c, d)),), (), [(), [a]], {(a, b)}, {*a, b}
x = a[b], a[b,], a[b, c], a[(b, c)], a[b:c], a[:, 1:2:3], a[...], a[:], a[*b], a[*b, c], a[b := c]
f(a, *b, c=d, *e, f=g, **h, **i)
f(a, b=c, *d); f(b=c, *d); f(*a, b, **c); f(x for x in y); f((x for x in y), z); f((yield)); f(a := b)
class A(B, *C, metaclass=D, **E): x: int; y: int = 1; z = w = 2
del a; del a, b; del (a, b); del [a, b]; del (a); del a[b], c.d; del (a,), [b]; del a,
x = "a" "b"; x = "a" b"" if c else b"a" b"b"; x = ("a"
x = "a" 'b' """c"""; x = r"\a" "\n" u"x"
x = f"a{b}c" "d{e}" f"{f}" f"" "g"; x = f""; x = f"" "a"; x = f"abc"; x = "a" f"b"; x = f"{a}{b}"
x = f"{a=}" f"b{ c = }d" f"{e=!r:>{f}}" f"{g.h[i]=:x}"
x = f"{{}}" f"{{{a}}}" rf"\{a}\n" f"\n\x41{a}\t" fr"{{\d}}" f"\{a}" f"\N{BULLET}{a}" f'{a!r:^{b.c}}' f"{a:{b}{c}}"
x = f"{f'{a}' + f'b'}" f"{ {a: b}[a] }" f"{lambda: 1}" f"{(lambda x: y)}" f"{a,}" f"{a, b}" f"{'c'}" f"{*a,}"
x = lambda: 0; x = lambda a, /, b=1, *c, d, e=2, **f: (yield); x = lambda *, a: a; x = lambda *a: a
def f(a, /, b: int = 1, *c: str, d, e: int = 2, **g: float) -> int: return
def f(*, a): yield; yield a; b = yield; c = yield from d; return
async def f(): await a; async with b as c, d: pass
async def f(): return [await a async for b in c if d if e]
x = {**a, b: c, "d": {}}; x = {a: b for a, b in c if d for e in f}; x = {a for a in b}; x = [a for a, in b]
x = -1, +a, ~b, not c, - -1, 1 - -1, 2 ** -1, a @ b, a // b % c << d >> e & f | g ^ h
x = 1_000, 0xff, 1e999, 1j, .5, 0o7, True, None, ..., b"\x00", "\ud800"
x += 1; x @= y; x **= 2; x //= 3; x.y[z] <<= a; x: int; x.y: int = 1; x[y]: int
import a; import a.b.c; import a.b as c, d; from a import b; from . import a; from ...a.b import c as d, e
from a import (b, c as d,); from a import *
global a, b
assert a; assert a, b; raise; raise a; raise a from b; pass
for a, b in c, d: break
for a in b: continue
x = a if b else c if d else e; x = (a if b else c) if d else e; (x := 1); print((x := 1), y := 2)
x = a.b.c.d(e).f[g].h; x = a().b()().c; x = (a.b).c; x = (a).b; x = "a".b; x = (1).b; x = 1 .real
@a.b(c) ; x
ﬁ = ª + µ.ﬁ(ﬁ=ﬁ); import ﬁ.ﬁ as ﬁ; global ﬁ
with a: pass
with a as b, c as (d, e), f: pass
with (a as b, c as d,): pass
with (a, b): pass
with (a, b) as c: pass
with (a): pass
print(*a, sep=""); print(a, (*b, c)); x = *a, b; x = *a,; return_ = [*a]; a, *b = c; *a, = b
type X = int; y = 1
def f[T: int](a: T) -> T: return a
class A[T]: x = 1
x = [*a for a in b]; y = {**a for a in b}
x = t"a{b}c"; y = 1
'''

BLOCKS = [
    "if a:\n    b\nelif c:\n    d\nelse:\n    e\n",
    "if a:\n    b\nelse:\n    if c:\n        d\n    else:\n        e\n    f\n",
    "if a: b; c\nelse: d; e\n",
    "for a in b:\n    c\nelse:\n    d\n",
    "while a:\n    b\nelse:\n    c\n",
    "try:\n    a\nexcept B as b:\n    c\nexcept (D, E):\n    f\nexcept:\n    g\nelse:\n    h\nfinally:\n    i\n",
    "try:\n    a\nfinally:\n    b\n",
    "try:\n    a\nexcept* B as b:\n    c\n",
    "match a, b:\n    case 1: x\n    case A.B | 'c': x\n    case [a, *b, _] if c > d: x\n    case {'k': v}: x\n",
    "match a:\n    case {**rest}: x\n    case C(d, e=f) as g: x\n    case (h | h): x\n    case -1j: x\n    case _: x\n",
    "@a\n@b.c(d)\nclass E:\n    'doc'\n    @f\n    async def g(self): ...\n    class H: pass\n",
    "def f():\n    def g():\n        yield\n    return lambda: (yield)\ndef h():\n    x = [(yield)]\n",
    "async def f():\n    async for a in b:\n        c\n    else:\n        d\n",
    "x = ('a'  # one\n     f'{b}'  # two\n     'c')\n",
    'x = f"""a\n  {b}\r\n  {c:\n}"""\r\n',
    'x = """a\r\nb"""\ry = f"""a\rb{c}"""\r',
    "\x0cx = 1\n\x0cdef f(): \\\n  pass\n",
    "x = [\n" + "    1,\n" * 1500 + "]\n",
    "x = {\n" + "".join(f"    'k{number}': (1, 2),\n" for number in range(1200)) + "}\ny = f(z)\n",
    "",
    "# nothing\n",
]  # fmt: skip


def source(text: str) -> Source:
    return Source("a.py", "/a.py", text)


def bare(form: Any) -> Any:
    """A form with its kind, which equality leaves out."""
    if isinstance(form, tuple):
        return (type(form).__name__, *map(bare, form))
    return type(form).__name__, form


def read(text: str, by: Callable[[Source], ModuleFacts]) -> Any:
    try:
        return by(source(text))
    except Unreadable as error:
        return str(error)


def check_alike(text: str) -> None:
    one, other = read(text, sketch), read(text, extract)
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
    else:
        assert bare(one.body) == bare(other.body)
        assert one.spans == other.spans


@pytest.mark.parametrize("text", PROGRAMS.strip().splitlines())
def test_lines(text: str) -> None:
    check_alike(text + "\n")


@pytest.mark.parametrize("text", BLOCKS)
def test_blocks(text: str) -> None:
    check_alike(text)


@pytest.mark.parametrize("text", ["(x): int = 1\n", "class A(metaclass=B, *C):\n    pass\n"])
def test_python_that_libcst_does_not_know(text: str) -> None:
    with pytest.raises(Unreadable):
        extract(source(text))
    sketched = sketch(source(text))
    assert sketched.body
    with pytest.raises(Differs):
        sketched.span(0)


@pytest.mark.parametrize("name", SAMPLE)
def test_modules(name: str) -> None:
    check_alike(decode((STDLIB / f"{name}.py").read_bytes())[0])


@pytest.mark.parametrize("code", sorted(pages.load()))
def test_programs_of_pages(code: str) -> None:
    for program in programs(pages.load()[code]):
        for text in program.files.values():
            check_alike(text)


LEAVES = st.sampled_from(
    ["a", "b.c", "1", "'s'", "b'x' b'y'", "f'{a}x'", "'s' f'{a=}'", "None", "...", "()", "f()", "a[1:2]", "(yield)"]
)


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(inner, inner)
    return st.one_of(
        pairs.map("({0[0]} and {0[1]} or {0[0]})".format),
        pairs.map("{0[0]} or {0[1]}".format),
        pairs.map("({0[0]}, {0[1]})".format),
        pairs.map("{0[0]}, *{0[1]}".format).map("({})".format),
        pairs.map("f({0[0]}, *{0[1]}, k={0[0]}, **{0[1]})".format),
        pairs.map("f(k={0[0]}, *{0[1]})".format),
        pairs.map("({0[0]}).x[{0[1]}, :]".format),
        pairs.map("{{{0[0]}: {0[1]}, **{0[0]}}}".format),
        pairs.map("[{0[0]} for x, y in {0[1]} if {0[0]}]".format),
        pairs.map("(lambda p={0[0]}, *q: {0[1]})".format),
        pairs.map("({0[0]} if {0[1]} else {0[0]})".format),
        pairs.map("(not {0[0]} < {0[1]} is {0[0]})".format),
        pairs.map("(w := -{0[0]} ** {0[1]})".format),
    )


@settings(max_examples=80, deadline=None)
@given(st.lists(st.recursive(LEAVES, _compound, max_leaves=12), min_size=1, max_size=4))
def test_whatever_is_written(expressions: list[str]) -> None:
    body = "".join(f"    x{number}, y = {text}, 1\n    return {text}\n" for number, text in enumerate(expressions))
    check_alike(f"def f():\n{body}del {expressions[0]}\n")


# -- the last word


def findings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    monkeypatch.chdir(folder)
    report = engine.check(["."], Config(isolated=True))
    assert not report.errors
    return report.findings


@pytest.mark.parametrize("folder", ["examples/faulty", "examples/fixed"])
def test_findings_are_those_of_libcst_alone(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quickly = findings(ROOT / folder, monkeypatch)
    monkeypatch.setattr(facts, "sketch", extract)
    assert findings(ROOT / folder, monkeypatch) == quickly


def test_where_they_differ_libcst_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(FAULTY)
    (tmp_path / "other.py").write_text(LOADER + "loader = DataLoader([1], num_workers=2)\n")
    truth = findings(tmp_path, monkeypatch)
    assert [(finding.code, finding.place.path) for finding in truth] == [("DLC203", "train.py")]

    def mistaken(tree: Any) -> forms.Block:
        said = repr(honest(tree)).replace("num_workers", "persistent_workers").replace("value=2", "value=True")
        return eval(said, vars(forms))  # type: ignore[no-any-return]

    honest = quick.forms_of
    monkeypatch.setattr(quick, "forms_of", mistaken)
    assert findings(tmp_path, monkeypatch) == truth


def test_what_libcst_cannot_read_is_named_where_there_is_something_to_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "quiet.py").write_text(LOADER + "(x): int = 1\n")
    (tmp_path / "train.py").write_text(FAULTY + "(x): int = 1\n")
    (tmp_path / "other.py").write_text(FAULTY)
    found = findings(tmp_path, monkeypatch)
    assert [(finding.code, finding.place.path) for finding in found] == [("DLC203", "other.py"), ("DLC001", "train.py")]


def test_many_files_that_libcst_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MAX_DIFFERING", 3)
    runs: list[int] = []
    judge = engine._Run._judge

    def counted(*args: Any) -> list[Finding]:
        runs.append(1)
        return judge(*args)

    monkeypatch.setattr(engine._Run, "_judge", counted)
    for number in range(8):
        (tmp_path / f"part_{number}.py").write_text(FAULTY + "(x): int = 1\n")
    (tmp_path / "other.py").write_text(FAULTY)
    codes = [finding.code for finding in findings(tmp_path, monkeypatch)]
    assert codes == ["DLC203"] + 8 * ["DLC001"]
    assert len(runs) == 5


def test_asking_for_a_place_is_what_reads_by_libcst(monkeypatch: pytest.MonkeyPatch) -> None:
    sketched = sketch(source(FAULTY))
    monkeypatch.setattr(facts, "extract", lambda read: ModuleFacts((), ()))
    with pytest.raises(Differs):
        sketched.span(0)


def test_libcst_is_not_loaded_where_there_is_nothing_to_report(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FAULTY.replace("persistent_workers=True", "num_workers=2"))
    (tmp_path / "helper.py").write_text("import train\nfor x in train.load([1]): pass\n")
    program = (
        "import sys; from dlcheck import engine; from dlcheck.config import Config\n"
        "report = engine.check(['.'], Config(isolated=True))\n"
        "print(len(report.findings), report.files, 'libcst' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["0", "2", "False"]
