"""Facts survive the way to bytes and back; what is damaged or foreign is refused."""

from __future__ import annotations

import math
import random
import re
import sysconfig
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcheck.facts import Unreadable, extract, forms
from dlcheck.facts.forms import ModuleFacts
from dlcheck.facts.serial import dumps, loads
from dlcheck.files import to_source
from dlcheck.source import Source

PAGES = sorted((Path(__file__).resolve().parent.parent / "rules").glob("DLC*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STDLIB = Path(sysconfig.get_path("stdlib"))
SAMPLE = ("ast", "argparse", "dataclasses", "enum", "functools", "re/__init__", "typing", "asyncio/tasks", "inspect")


def facts(text: str) -> ModuleFacts:
    return extract(Source("a.py", "a.py", text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name[:6])
def test_pages_come_back(page: Path) -> None:
    texts = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert texts
    for text in texts:
        try:
            read = facts(text)
        except Unreadable:
            continue
        assert loads(dumps(read)) == read


@pytest.mark.parametrize("name", SAMPLE)
def test_the_standard_library_comes_back(name: str) -> None:
    file = STDLIB / f"{name}.py"
    if not file.exists():  # a package in one release, a module in another
        file = STDLIB / f"{name.partition('/')[0]}.py"
    data = file.read_bytes()
    read = extract(to_source(str(file), data))
    written = dumps(read)
    assert loads(written) == read
    assert len(written) < len(data)


CONSTANTS = [
    None, True, False, 0, 1, -1, 2**53 - 1, 2**53, -(2**53), 2**64, 10**5000, 0.0, -0.0, 1.0, 0.1, 5e-324, math.inf,
    -math.inf, 1j, complex(-0.0, math.inf), "", "\0", "é€😀", "\ud83d\ude00", "\udc80", "a\ud800", "\n\r\t\u2028", b"",
    b"\0\xff", ..., "...", "None", ("e",)[0],
]  # fmt: skip


@pytest.mark.parametrize("value", CONSTANTS, ids=lambda value: type(value).__name__)
def test_constants_come_back(value: object) -> None:
    back = constant(value)
    assert type(back) is type(value)
    assert back == value
    if isinstance(value, (float, complex)):
        assert repr(back) == repr(value)


def test_not_a_number_comes_back() -> None:
    back = constant(math.nan)
    assert isinstance(back, float)
    assert math.isnan(back)


def test_equal_constants_of_several_types_stay_apart() -> None:
    values = [1, True, 1.0, 1 + 0j, 0, False, 0.0, -0.0, 0j, "1", b"1", None, "None"]
    body = tuple(forms.Do(forms.Const(value, 0), 0) for value in values)
    back = loads(dumps(ModuleFacts(body, (0, 0))))
    assert [repr(do.value.value) for do in back.body] == [repr(value) for value in values]  # type: ignore[union-attr]


def constant(value: object) -> object:
    back = loads(dumps(ModuleFacts((forms.Do(forms.Const(value, 1), 0),), (0, 3, 0, 2))))
    do = back.body[0]
    assert back.spans == (0, 3, 0, 2)
    assert isinstance(do, forms.Do)
    assert isinstance(do.value, forms.Const)
    return do.value.value


def test_what_is_no_constant_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        constant(object())


@given(
    st.text(alphabet=st.characters(codec=None, exclude_categories=()))
    | st.binary()
    | st.integers()
    | st.floats(allow_nan=False)
)
def test_any_constant_comes_back(value: object) -> None:
    assert constant(value) == value


def test_an_empty_module_comes_back() -> None:
    assert loads(dumps(facts(""))) == facts("")


def test_forms_come_back_as_what_they_were() -> None:
    read = facts(
        "@a.b\nasync def f(x, /, *y, z: int = 1, **k) -> None:\n    with a as b, c:\n        yield {**k, 1: [*y]}\n"
    )
    back = loads(dumps(read))
    function = back.body[0]
    assert isinstance(function, forms.Function)
    assert [param.kind for param in function.params] == ["positional", "*", "keyword", "**"]
    assert function.is_generator is True
    assert function.is_async is True
    assert back.span(function.name_at) == read.span(function.name_at)


def test_the_deepest_that_is_read_comes_back() -> None:
    text = "if a:\n    b\n" + "elif a:\n    b\n" * 390 + "x = " + "[" * 90 + "]" * 90 + "\n"
    read = facts(text)
    # Comparing them would recurse.
    assert dumps(loads(dumps(read))) == dumps(read)


GOOD = dumps(facts("import torch\nx = torch.f(1, 'a', *b, **{'c': 2.5})\nfor i in x:\n    pass\n"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"{}",
        b"\x80\x04]\x94.",
        GOOD[:-1],
        GOOD + b" ",
        GOOD.partition(b"\n")[0],
        GOOD.replace(b"facts/1", b"facts/2"),
        GOOD.replace(b"dlcheck", b"others!"),
    ],
)
def test_foreign_data_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="facts"):
        loads(data)


def test_each_damaged_byte_is_noticed() -> None:
    for index in range(len(GOOD)):
        damaged = bytearray(GOOD)
        damaged[index] ^= 1 << (index % 8)
        with pytest.raises(ValueError, match=r".+"):
            loads(bytes(damaged))


HEADER = GOOD.partition(b" ")[0]


def sealed(payload: bytes) -> bytes:
    """A payload under a valid header."""
    return HEADER + f" {zlib.crc32(payload):08x}\n".encode() + payload


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[]", "[1,2,3,4]", "null", "[[],[],[]]", "[[],[1],[],[]]", "[[],[0],[],[]]", "[[],[0,0],[],[]]",
        "[[],[1,5],[],[]]", "[[],[1,-1],[],[]]", "[[],[9999],[],[]]", "[[],[-1],[],[]]", "[[],[2],[],[]]",
        "[[],[1,0],[],[1]]", "[[],[1,0],[],[null,null]]", "[[],[1,0,1,0],[],[]]", "[[null],[0,0],[],[]]",
        "[[],[],[],[]]",
        '[[["s",[-5]]],[1,0],[],[]]', '[[["i","zz"]],[1,0],[],[]]', '[[["z"]],[1,0],[],[]]', '[[["b"]],[1,0],[],[]]',
        '[[["f",null]],[1,0],[],[]]', '[[["b","\u20ac"]],[1,0],[],[]]', "[" * 100_000,
    ],
)  # fmt: skip
def test_sealed_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        loads(sealed(zlib.compress(text.encode())))


def test_sealed_noise_is_refused() -> None:
    noise = random.Random(1)
    for _ in range(200):
        with pytest.raises(ValueError, match=r".*"):
            loads(sealed(noise.randbytes(20)))
