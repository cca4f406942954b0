"""What a batch consists of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

DEEP = 4
WIDE = 20


def described(value: Any, deep: int = 0) -> dict[str, Any]:
    """Structure, shapes and types, to some depth."""
    if _is_tensor(value):
        return {
            "kind": "tensor",
            "shape": list(value.shape),
            "dtype": str(value.dtype).replace("torch.", ""),
            "bytes": value.numel() * value.element_size(),
            "device": value.device.type,
        }
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return {"kind": "array", "shape": list(value.shape), "dtype": str(value.dtype), "bytes": int(value.nbytes)}
    if deep < DEEP and isinstance(value, Mapping):
        return {"kind": "dict", "of": {str(key): described(part, deep + 1) for key, part in list(value.items())[:WIDE]}}
    if deep < DEEP and isinstance(value, (list, tuple)):
        parts = [described(part, deep + 1) for part in value[:WIDE]]
        return {"kind": type(value).__name__, "length": len(value), "of": parts}
    return {"kind": type(value).__name__}


def compared(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, bool]:
    """Whether two batches are built alike, and whether all sizes agree as well: sentences may differ in length."""
    return {"same": _form(a) == _form(b), "same_sizes": _sizes(a) == _sizes(b)}


def _form(told: Any) -> Any:
    if not isinstance(told, Mapping):
        return told
    kind, parts = told.get("kind"), told.get("of")
    if isinstance(parts, Mapping):
        return kind, {key: _form(part) for key, part in parts.items()}
    if isinstance(parts, list):
        # A plain list is as long as the batch is large; each place of a tuple means something.
        return kind, [_form(part) for part in (parts if kind == "tuple" else parts[:1])]
    return kind, told.get("dtype"), len(told.get("shape") or ())


def _sizes(told: Any) -> list[Any]:
    if not isinstance(told, Mapping):
        return []
    parts = told.get("of")
    inner = list(parts.values()) if isinstance(parts, Mapping) else parts or []
    return [told.get("shape"), told.get("length"), *(_sizes(part) for part in inner)]


def versions(batch: Any) -> tuple[tuple[int, ...], int]:
    """How often each tensor has been written to, and how many values do not say."""
    seen, unchecked = [], 0
    for leaf in _leaves(batch, 0):
        version = getattr(leaf, "_version", None)
        if isinstance(version, int):
            seen.append(version)
        elif not isinstance(leaf, (str, bytes, int, float, bool, type(None))):
            unchecked += 1
    return tuple(seen), unchecked


def _leaves(value: Any, deep: int) -> Iterator[Any]:
    if deep < DEEP and isinstance(value, Mapping):
        for part in value.values():
            yield from _leaves(part, deep + 1)
    elif deep < DEEP and isinstance(value, (list, tuple)):
        for part in value:
            yield from _leaves(part, deep + 1)
    else:
        yield value


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "element_size") and hasattr(value, "numel")
