"""ModuleFacts as bytes and back: for the cache and for other processes, without pickle.

A header line names the format, the forms that it was written for, and a checksum; compressed JSON
follows, of four lists: literals, forms, the forms' own numbers, spans.  The forms stand one after the
other, children before parents, so that neither way recurses: a chain of elif is as deep as it is long.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from dlcheck.facts import forms
from dlcheck.facts.forms import ModuleFacts

VERSION = 1

# What stands in the list of forms: one of these with its operand, or the kind of a form with its literals.
_LITERAL, _TUPLE = 0, 1
_FIRST_FORM = 2

# Fields that are numbers, and fields that are words (or None); all others hold forms or tuples of them.
_NUMBERS = frozenset({"at", "head", "level", "name_at"})
_WORDS = frozenset({"bound", "id", "kind", "module", "name", "op", "star"})

_LARGEST_NUMBER = 2**53  # beyond, readers of JSON may round


def _shape(form: Any) -> str:
    """For each field: n(umber), w(ord or other literal), or a child."""
    fields: tuple[str, ...] = form._fields
    return "".join(
        "n" if field in _NUMBERS else "w" if field in _WORDS or form is forms.Const else "c" for field in fields
    )


_FORMS: tuple[Any, ...] = tuple(
    form for form in vars(forms).values() if isinstance(form, type) and hasattr(form, "_fields")
)
_SHAPES = {form: (number, _shape(form)) for number, form in enumerate(_FORMS, _FIRST_FORM)}
_BY_NUMBER = {number: (form, shape, shape.count("c")) for form, (number, shape) in _SHAPES.items()}

# Facts that were written for other forms than these are of an unknown version.
_LAYOUT = zlib.crc32(repr([(form.__name__, form._fields) for form in _FORMS]).encode())
_FORMAT = f"dlcheck.facts/{VERSION}.{_LAYOUT:08x}"


def dumps(facts: ModuleFacts) -> bytes:
    """The serial form of facts."""
    literals = _Literals()
    code, numbers = _flat(facts.body, literals)
    text = json.dumps([literals.table, code, _steps(numbers), list(_lengths(facts.spans))], separators=(",", ":"))
    payload = zlib.compress(text.encode("ascii"), 1)
    return f"{_FORMAT} {zlib.crc32(payload):08x}\n".encode("ascii") + payload


def loads(data: bytes) -> ModuleFacts:
    """The facts of a serial form.

    Raises ValueError for data of another version and for damaged data.
    """
    header, _, payload = data.partition(b"\n")
    version, _, checksum = header.decode("ascii", "replace").partition(" ")
    if version != _FORMAT:
        raise ValueError(f"facts of an unknown version: {version[:40]!r}, not {_FORMAT!r}")
    if checksum != f"{zlib.crc32(payload):08x}":
        raise ValueError("damaged facts: the checksum differs")
    try:
        table, code, steps, lengths = json.loads(zlib.decompress(payload))
        body = _built(code, [_decoded(literal) for literal in table], list(accumulate(steps)))
        return ModuleFacts(body, _offsets(lengths))
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, zlib.error) as error:
        raise ValueError(f"damaged facts: {error!r}") from None


# -- literals


class _Literals:
    """Each string and constant once, with its index."""

    def __init__(self) -> None:
        self.table: list[object] = []
        self._indexes: dict[object, int] = {}

    def index(self, value: object) -> int:
        # 1, 1.0 and True are equal, and so are 0.0 and -0.0; their codes are not.
        key = value if value.__class__ is str else (repr(_coded(value)),)
        known = self._indexes.get(key)
        if known is None:
            known = self._indexes[key] = len(self.table)
            self.table.append(_coded(value))
        return known


def _coded(value: object) -> object:
    """A literal in JSON: itself, or a list of a letter and words where JSON has no such value."""
    kind = value.__class__
    if value is None or kind is bool:
        return value
    if isinstance(value, str):
        # JSON would join two lone surrogates to one character.
        return value if _is_text(value) else ["s", [ord(character) for character in value]]
    if isinstance(value, int):
        return value if -_LARGEST_NUMBER < value < _LARGEST_NUMBER else ["i", hex(value)]
    if isinstance(value, float):
        return ["f", value.hex()]
    if isinstance(value, complex):
        return ["c", value.real.hex(), value.imag.hex()]
    if isinstance(value, bytes):
        return ["b", value.decode("latin-1")]
    if value is ...:
        return ["e"]
    raise TypeError(f"no literal of Python: {kind.__name__}")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _decoded(coded: Any) -> object:
    if not isinstance(coded, list):
        return coded
    kind, *words = coded
    if kind == "s":
        return "".join(map(chr, words[0]))
    if kind == "i":
        return int(words[0], 16)
    if kind == "f":
        return float.fromhex(words[0])
    if kind == "c":
        return complex(float.fromhex(words[0]), float.fromhex(words[1]))
    if kind == "b":
        return words[0].encode("latin-1")
    if kind == "e":
        return ...
    raise ValueError(f"damaged facts: no kind of literal: {kind!r}")


# -- forms


def _flat(root: object, literals: _Literals) -> tuple[list[int], list[int]]:
    """A form and all below it, children first: kinds with their literals, and the forms' own numbers."""
    code: list[int] = []
    numbers: list[int] = []
    todo: list[Any] = [root]
    while todo:  # parents first and last children first: the reverse of what is wanted
        item = todo.pop()
        known = _SHAPES.get(item.__class__)
        if known is not None:
            number, shape = known
            piece = [number]
            own: list[int] = []
            for kind, value in zip(shape, item, strict=True):
                if kind == "c":
                    todo.append(value)
                elif kind == "n":
                    own.append(value)
                else:
                    piece.append(literals.index(value))
            code += reversed(piece)
            numbers += reversed(own)
        elif item.__class__ is tuple:
            code += (len(item), _TUPLE)
            todo.extend(item)
        else:
            code += (literals.index(item), _LITERAL)
    return code[::-1], numbers[::-1]


def _built(code: list[int], literals: list[object], numbers: list[int]) -> Any:
    stack: list[Any] = []
    codes, own = iter(code), iter(numbers)
    for number in codes:
        if number == _LITERAL:
            stack.append(literals[next(codes, -1)])
        elif number == _TUPLE:
            stack.append(tuple(_popped(stack, next(codes, -1))))
        else:
            form, shape, count = _BY_NUMBER[number]
            children = iter(_popped(stack, count))
            stack.append(
                form._make(
                    next(children) if kind == "c" else next(own) if kind == "n" else literals[next(codes)]
                    for kind in shape
                )
            )
    if len(stack) != 1 or stack[0].__class__ is not tuple:
        raise ValueError("damaged facts: no single body")
    return stack[0]


def _popped(stack: list[Any], count: int) -> list[Any]:
    if not 0 <= count <= len(stack):
        raise ValueError("damaged facts: a form without its children")
    first = len(stack) - count
    children = stack[first:]
    del stack[first:]
    return children


# -- spans


def _steps(numbers: list[int]) -> list[int]:
    """Numbers as steps from the one before: small numbers are short in JSON."""
    return [number - before for number, before in zip(numbers, [0, *numbers], strict=False)]


def _lengths(spans: tuple[int, ...]) -> Iterable[int]:
    """Starts as steps, ends as lengths."""
    before = 0
    for start, end in zip(spans[::2], spans[1::2], strict=True):
        yield start - before
        yield end - start
        before = start


def _offsets(lengths: list[int]) -> tuple[int, ...]:
    spans: list[int] = []
    for start, length in zip(accumulate(lengths[::2]), lengths[1::2], strict=True):
        spans += (start, start + length)
    return tuple(spans)
