"""Values of any type of a record, for tests that must hold for all of them."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from hypothesis import strategies as st

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(max_size=8), PLAIN, max_size=3)
LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=12),
    int: st.integers(-(2**60), 2**60),
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    Any: PLAIN,
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type, made from the annotations alone: a field that is added is tested with the others."""
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        return st.builds(kind, **{one.name: values_of(hints[one.name]) for one in fields(kind)})
    if kind in LEAVES:
        return LEAVES[kind]
    text, given_ = str(kind), get_args(kind)
    if "Literal" in text.partition("[")[0]:
        return st.sampled_from(given_)
    if type(None) in given_:
        return st.none() | values_of(next(one for one in given_ if one is not type(None)))
    if text.startswith("tuple"):
        return st.tuples(st.floats(allow_nan=False), st.floats(allow_nan=False)).map(_openable)
    if "Mapping" in text:
        return OBJECTS if given_[1] is Any else st.dictionaries(st.text(max_size=8), values_of(given_[1]), max_size=2)
    return st.lists(values_of(given_[0]), max_size=2).map(tuple)


def _openable(ends: tuple[float, float]) -> tuple[float, float]:
    """An interval: open only towards its own side."""
    low, high = ends
    return (0.0 if low == math.inf else low), (0.0 if high == -math.inf else high)
