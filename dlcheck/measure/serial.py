"""Records as JSON and back.

What is read may have been written by anybody: every value is held against the type of its field, and
what does not fit is a RecordError that says where.  JSON has no number for "infinite" and none for
"not a number": null stands for both, and in an interval for an end that is open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from dlcheck.harmless import printable
from dlcheck.measure.record import SCHEMA, Record

_FAMILY = SCHEMA.partition("/")[0]

Reader = Callable[[Any], Any]


class RecordError(ValueError):
    """A document that is no record of this version; one line for people."""


class _Misfit(Exception):
    """A value of the wrong type, and the way to it."""

    def __init__(self, wanted: str, *way: str) -> None:
        super().__init__(wanted)
        self.wanted = wanted
        self.way = way

    def below(self, step: str) -> _Misfit:
        return _Misfit(self.wanted, step, *self.way)


def to_json(record: Record) -> dict[str, Any]:
    """A record as plain JSON data; a field that is None by default is left out where it is."""
    return {"schema": SCHEMA, **_fields_of(record)}


def from_json(document: object) -> Record:
    """The record of a document; raises RecordError for what is none of this version."""
    if not isinstance(document, dict):
        raise RecordError("not a measurement record")
    schema = document.get("schema")
    if isinstance(schema, str) and schema.startswith(_FAMILY + "/") and schema != SCHEMA:
        raise RecordError(f"a record of another version: {printable(schema[:60])}, not {SCHEMA}")
    if schema != SCHEMA:
        raise RecordError("not a measurement record")
    try:
        record = _reader(Record)({key: value for key, value in document.items() if key != "schema"})
    except _Misfit as misfit:
        where = printable(".".join(misfit.way))[:80]
        raise RecordError(f"not a valid record: {where} is not {misfit.wanted}") from None
    except RecursionError:
        raise RecordError("not a valid record: nested too deep") from None
    assert isinstance(record, Record)
    return record


# Writing


def plain(value: Any) -> Any:
    """JSON data of a value; a number that JSON has not is null, and of a class what is not its default."""
    if is_dataclass(value) and not isinstance(value, type):
        return _fields_of(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value)  # of a configuration: a type of torch, a path


def _fields_of(value: Any) -> dict[str, Any]:
    pairs = ((one, getattr(value, one.name)) for one in fields(value))
    return {one.name: plain(item) for one, item in pairs if item is not None or one.default is MISSING}


# Reading


@cache
def _reader(kind: Any) -> Reader:
    """A function that makes a value of a type from its JSON form."""
    if is_dataclass(kind):
        return _of_class(kind)
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    origin, given = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _one_of(given)
    if origin in (Union, UnionType):
        (inner,) = (one for one in given if one is not type(None))
        return _or_none(_reader(inner))
    if origin is tuple:
        return _interval
    item = _reader(given[-1])
    return _mapping(item) if issubclass(origin, Mapping) else _sequence(item)


def _of_class(kind: Any) -> Reader:
    hints = get_type_hints(kind)
    readers = {one.name: _reader(hints[one.name]) for one in fields(kind)}
    needed = [one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING]

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Misfit("an object")
        for name in needed:
            if name not in value:
                raise _Misfit("there", name)
        for name in value:
            if name not in readers:
                raise _Misfit("a field of this version", str(name))
        return kind(**{name: _below(name, readers[name], item) for name, item in value.items()})

    return read


def _below(step: str, reader: Reader, value: Any) -> Any:
    try:
        return reader(value)
    except _Misfit as misfit:
        raise misfit.below(step) from None


def _one_of(words: tuple[Any, ...]) -> Reader:
    def read(value: Any) -> Any:
        if value not in words:
            raise _Misfit(f"one of {', '.join(words)}")
        return value

    return read


def _or_none(inner: Reader) -> Reader:
    return lambda value: None if value is None else inner(value)


def _mapping(item: Reader) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Misfit("an object")
        return {key: _below(key, item, one) for key, one in value.items()}

    return read


def _sequence(item: Reader) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise _Misfit("a list")
        return tuple(_below(str(number), item, one) for number, one in enumerate(value))

    return read


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Misfit("text")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Misfit("a whole number")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Misfit("true or false")
    return value


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _Misfit("a number")
    try:
        return float(value)
    except OverflowError:
        raise _Misfit("a number that can be calculated with") from None


def _interval(value: Any) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise _Misfit("an interval: two numbers")
    low, high = (_number(end) for end in value)
    return (-math.inf if math.isnan(low) else low), (math.inf if math.isnan(high) else high)


_SIMPLE: dict[Any, Reader] = {
    str: _text,
    int: _whole,
    bool: _flag,
    float: _number,
    Any: lambda value: value,
}
