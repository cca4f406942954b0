"""Facts and advice as text for people and as JSON (`env.schema.json`, `advice.schema.json`)."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from dlcheck import __version__
from dlcheck.advise.advice import Advice
from dlcheck.advise.env import SCHEMA as ENV_SCHEMA
from dlcheck.advise.env import Facts, warnings
from dlcheck.advise.recommend import Knob, MachineFacts
from dlcheck.advise.survey import Spot, Written
from dlcheck.advise.units import size

SCHEMA = "dlcheck.advice/1"
WIDTH = 118
BYTES = frozenset({"memory_total", "memory_limit", "memory_available", "shm_total", "shm_free", "locked_memory"})

# The options that a recommendation speaks of, by what the code calls them.
KNOBS = {
    "num_workers": "num_workers",
    "prefetch_factor": "prefetch_factor",
    "pin_memory": "pin_memory",
    "persistent_workers": "persistent_workers",
    "non_blocking": "",  # of the copies of its batches
    "start_method": "multiprocessing_context",
}


# env


def env_as_text(found: Facts) -> str:
    lines: list[str] = []
    for name, fact in found.items():
        told = _value(name, fact.value)
        lines.append(f"{name.replace('_', ' '):<17} {told}  [{fact.source}]")
        if fact.follows:
            lines += _wrapped(fact.follows, 18)
    for warning in warnings(found):
        lines += _wrapped(f"warning: {warning.fact.replace('_', ' ')}: {warning.message}", 0)
    return "\n".join(lines) + "\n"


def env_as_json(found: Facts) -> dict[str, Any]:
    return {
        "schema": ENV_SCHEMA,
        "version": __version__,
        "facts": {name: dataclasses.asdict(fact) for name, fact in found.items()},
        "warnings": [dataclasses.asdict(warning) for warning in warnings(found)],
    }


def _value(name: str, value: Any) -> str:
    if value is None:
        return "none" if name in ("cpu_quota", "memory_limit") else "unknown" if name not in _MAY_BE_UNSET else "not set"
    if name in BYTES and isinstance(value, int):
        return size(value)
    if name == "storage":
        return f"{value['kind']}: {value['filesystem']} of {value['device']} on {value['mount']}"
    if name == "gpus":
        return "; ".join(map(_gpu, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


_MAY_BE_UNSET = frozenset({"ranks", "omp_threads", "mkl_threads", "cpuset"})


def _gpu(gpu: dict[str, Any]) -> str:
    parts = [gpu["name"]]
    if gpu.get("memory"):
        parts.append(size(gpu["memory"]))
    if gpu.get("generation") and gpu.get("width"):
        speed = f", {gpu['link_gbs']:.0f} GB/s each way" if gpu.get("link_gbs") else ""
        parts.append(f"PCIe {gpu['generation']} x{gpu['width']}{speed}")
    return ", ".join(parts)


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent or 4), break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip


# advise


def as_text(given: Sequence[Advice], machine: str) -> str:
    lines = _wrapped(f"{machine} (`dlcheck env` says more)", 0)
    for one in given:
        lines += ["", *_of_loader(one)]
    return "\n".join(lines) + "\n"


def _of_loader(one: Advice) -> Iterator[str]:
    loader, found = one.loader, one.recommendation
    callers = [str(spot) for spot in loader.callers[-1:]] if len(loader.callers) == 1 else [str(spot) for spot in loader.callers]
    shown = ", ".join(callers[:3]) + (", ..." if len(callers) > 3 else "")
    of = f" of {loader.dataset}" if loader.dataset else ""
    batches = f", batches of {one.dataset.batch_size}" if one.dataset.batch_size else ""
    yield from _wrapped(f"{loader.at}: {loader.name}{of}{batches}{f' (called from {shown})' if shown else ''}", 0)
    moot = found.num_workers.value == 0 and found.num_workers.basis != "open"
    for name, option in KNOBS.items():
        knob: Knob = getattr(found, name)
        if not (moot and name in ("prefetch_factor", "persistent_workers", "start_method")) or _is_given(one, option):
            yield from _row(one, name, option, knob)
    yield from _footer(one)


def _is_given(one: Advice, option: str) -> bool:
    return any(written.at is not None and written.value for written in one.loader.written.get(option, ()))


def _row(one: Advice, name: str, option: str, knob: Knob) -> list[str]:
    now = _now(one, name, option)
    advised = _advised(name, knob)
    same = advised == now
    head = f"  {name:<19} {now:<13} {'as it is' if same else '-> ' + advised:<17} "
    origin = _origin(one.loader.written.get(option, ()))
    why = knob.why + (f" [now: {origin}]" if origin else "")
    body = textwrap.wrap(why, WIDTH - 54, break_on_hyphens=False, break_long_words=False) or [""]
    first = head if len(head) <= 54 else head + "\n" + " " * 54
    return [line.rstrip() for line in [f"{first:<54}{body[0]}", *(" " * 54 + more for more in body[1:])]]


def _now(one: Advice, name: str, option: str) -> str:
    if name == "non_blocking":
        told = dict.fromkeys("?" if copy.non_blocking is None else str(copy.non_blocking) for copy in one.loader.copies)
        return " or ".join(told) or "-"
    told = dict.fromkeys(written.text for written in one.loader.written.get(option, ()))
    text = " or ".join(told)
    return "default" if name in ("start_method", "prefetch_factor") and text == "None" else text.replace("'", "")


def _advised(name: str, knob: Knob) -> str:
    if knob.basis == "open":
        return f"{knob.span[0]} to {knob.span[1]}: measure" if knob.span else "depends"
    if knob.value is None:
        return "default" if name in ("prefetch_factor", "start_method") else "not yours"
    if knob.span and knob.span[0] != knob.span[1]:
        return f"{knob.value} ({knob.span[0]} to {knob.span[1]})"
    return str(knob.value)


def _origin(written: Sequence[Written]) -> str:
    told = dict.fromkeys(
        one.origin or str(one.at) for one in written if one.at is not None and (one.origin or one.value is not None)
    )
    return "; ".join(list(told)[:2])


def _footer(one: Advice) -> Iterator[str]:
    found, lines = one.recommendation, []
    if found.memory is not None:
        in_shm = f", {size(found.shm)} of it in /dev/shm" if found.shm else ""
        lines.append(f"takes {size(found.memory)} of memory{in_shm}")
    elif found.least_memory:
        lines.append(f"takes {size(found.least_memory)} of memory, and its batches, whose size the code does not tell")
    lines += [f"cannot work as written: {told}" for told in one.unfit]
    lines += [f"does not fit: {told}" for told in found.refused]
    lines += [*found.warnings, *one.notes]
    if one.record:
        lines.append(f"with what was measured here (record {one.record})")
    if found.would_change:
        lines.append(f"would change it: {'; '.join(found.would_change)}")
    if one.commands:
        lines.append("find out: " + " or ".join(one.commands))
    for line in lines:
        yield from _wrapped(f"  {line}", 0)


def as_json(given: Sequence[Advice], machine: MachineFacts) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "version": __version__,
        "machine": dataclasses.asdict(machine),
        "loaders": [_loader_as_json(one) for one in given],
    }


def _loader_as_json(one: Advice) -> dict[str, Any]:
    loader, found = one.loader, one.recommendation
    return {
        "name": loader.name,
        **_spot(loader.at),
        "called_from": [_spot(spot) for spot in loader.callers],
        "dataset": loader.dataset,
        "facts": dataclasses.asdict(one.dataset),
        "options": {name: _knob(one, option, getattr(found, name)) for name, option in KNOBS.items()},
        "copies": [{**_spot(copy.at), "non_blocking": copy.non_blocking} for copy in loader.copies],
        "memory": {"bytes": found.memory, "least_bytes": found.least_memory, "shm_bytes": found.shm},
        "caps": [cap._asdict() for cap in found.caps],
        "binding": found.binding.name if found.binding is not None else None,
        "unfit": list(one.unfit),
        "refused": list(found.refused),
        "warnings": [*found.warnings, *one.notes],
        "would_change": list(found.would_change),
        "commands": list(one.commands),
        "record": one.record,
    }


def _knob(one: Advice, option: str, knob: Knob) -> dict[str, Any]:
    written = [
        {
            "text": told.text,
            "value": told.value,
            "known": told.known,
            "at": _spot(told.at) if told.at is not None else None,
            "origin": told.origin,
        }
        for told in one.loader.written.get(option, ())
    ]
    span = list(knob.span) if knob.span is not None else None
    return {"written": written, "value": knob.value, "span": span, "basis": knob.basis, "why": knob.why}


def _spot(spot: Spot) -> dict[str, Any]:
    return {"path": spot.path, "line": spot.line, "cell": spot.cell}
