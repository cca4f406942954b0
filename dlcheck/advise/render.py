"""Facts and advice as text for people and as JSON (`env.schema.json`, `advice.schema.json`)."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from dlcheck import __version__
from dlcheck.advise.advice import Advice
from dlcheck.advise.env import SCHEMA as ENV_SCHEMA
from dlcheck.advise.env import Facts
from dlcheck.advise.known import Knob, MachineFacts
from dlcheck.advise.limits import warnings
from dlcheck.advise.survey import Spot
from dlcheck.advise.tuned import Tuned
from dlcheck.advise.units import size
from dlcheck.harmless import harmless

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
        head = f"{name.replace('_', ' '):<17} {told}"
        lines += (
            [head, *_wrapped(f"[{fact.source}]", 18)]
            if len(head) + len(fact.source) > WIDTH
            else [f"{head}  [{fact.source}]"]
        )
        if fact.follows:
            lines += _wrapped(fact.follows, 18)
    for warning in warnings(found):
        lines += _wrapped(f"warning: {warning.fact.replace('_', ' ')}: {warning.message}", 0)
    return "\n".join(map(harmless, lines)) + "\n"


def env_as_json(found: Facts) -> dict[str, Any]:
    return {
        "schema": ENV_SCHEMA,
        "version": __version__,
        "facts": {name: dataclasses.asdict(fact) for name, fact in found.items()},
        "warnings": [dataclasses.asdict(warning) for warning in warnings(found)],
    }


def _value(name: str, value: Any) -> str:
    if value is None:
        return _WITHOUT.get(name, "unknown")
    if name in BYTES and isinstance(value, int):
        return size(value)
    if name == "storage":
        return f"{value['kind']}: {value['filesystem']} of {value['device']} on {value['mount']}"
    if name == "gpus":
        return "; ".join(map(_gpu, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


_WITHOUT = {
    **dict.fromkeys(("cpu_quota", "memory_limit", "cpuset"), "none known"),
    **dict.fromkeys(("ranks", "omp_threads", "mkl_threads"), "not set"),
}


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
    for body, group in _grouped(given).items():
        lines += ["", *(line for one in group for line in _head(one)), *body]
        commands = dict.fromkeys(command for one in group for command in one.commands)
        lines += [f"  {'to measure: ' if not number else ' ' * 12}{line}" for number, line in enumerate(commands)]
    return "\n".join(map(harmless, lines)) + "\n"


def _grouped(given: Sequence[Advice]) -> dict[tuple[str, ...], list[Advice]]:
    """The loaders by what is said of them."""
    found: dict[tuple[str, ...], list[Advice]] = {}
    for one in given:
        found.setdefault(tuple(_body(one)), []).append(one)
    return found


def _head(one: Advice) -> list[str]:
    loader = one.loader
    callers = ", ".join(map(str, loader.callers[:3])) + (", ..." if len(loader.callers) > 3 else "")
    of = f" of {loader.dataset}" if loader.dataset else ""
    batches = f", batches of {one.dataset.batch_size}" if one.dataset.batch_size else ""
    called = f" (called from {callers})" if callers else ""
    return _wrapped(f"{loader.at}: {loader.name}{of}{batches}{called}", 0)


def _body(one: Advice) -> Iterator[str]:
    found = one.recommendation
    none = found.num_workers.value == 0
    yield from _table(
        [
            _row(one, name, option, getattr(found, name))
            for name, option in KNOBS.items()
            if not (none and name in _OF_WORKERS) or _is_given(one, option)
        ]
    )
    yield from _footer(one)


_OF_WORKERS = frozenset({"prefetch_factor", "persistent_workers", "start_method"})


def _is_given(one: Advice, option: str) -> bool:
    return any(written.at is not None and written.value for written in one.loader.written.get(option, ()))


def _row(one: Advice, name: str, option: str, knob: Knob) -> tuple[str, str, str, str]:
    """An option, what is written, what is advised, and why."""
    now, advised, origin = _now(one, name, option), _advised(name, knob), _origin(one, option)
    same = (
        str(knob.value) == now or now == "default" and name in _OF_WORKERS and one.recommendation.num_workers.value != 0
    )
    told = advised if not same else f"as it is, {advised}" if knob.span else "as it is"
    return name, now, told, knob.why + (f" [now: {origin}]" if origin else "")


def _table(rows: Sequence[tuple[str, str, str, str]]) -> Iterator[str]:
    names, now, advised = (min(22, max(len(row[column]) for row in rows)) for column in range(3))
    start = 2 + names + 2 + now + 4 + advised + 2
    for row in rows:
        head = f"  {row[0]:<{names}}  {row[1]:<{now}} -> {row[2]:<{advised}}  "
        first, *others = textwrap.wrap(row[3], max(40, WIDTH - start), break_on_hyphens=False, break_long_words=False)
        if len(head) > start:  # what is written there is long
            yield head.rstrip()
            head = " " * start
        yield f"{head}{first}"
        yield from (" " * start + line for line in others)


def _now(one: Advice, name: str, option: str) -> str:
    if name == "non_blocking":
        told = dict.fromkeys("?" if copy.non_blocking is None else str(copy.non_blocking) for copy in one.loader.copies)
        return " or ".join(told) or "no copy"
    text = " or ".join(dict.fromkeys(written.text for written in one.loader.written.get(option, ())))
    return "default" if name in ("start_method", "prefetch_factor") and text == "None" else text.replace("'", "")


def _advised(name: str, knob: Knob) -> str:
    if knob.basis == "open":
        return f"measure: {knob.span[0]} to {knob.span[1]}" if knob.span else "depends"
    if knob.value is None:
        return "default" if name in _OF_WORKERS else "not yours"
    if knob.span and knob.span[0] != knob.span[1]:
        return f"up to {knob.value}" if knob.value == knob.span[1] else f"{knob.value} or more"
    return str(knob.value)


def _origin(one: Advice, option: str) -> str:
    """Where a value comes from, if not from the constructor's own call."""
    loader, told = one.loader, []
    for written in loader.written.get(option, ()):
        at = written.at
        first, last = loader.lines
        inside = at is not None and at.path == loader.at.path and at.cell == loader.at.cell and first <= at.line <= last
        if written.origin:
            told.append(written.origin)
        elif at is not None and not inside:
            told.append(str(at))
    return "; ".join(list(dict.fromkeys(told))[:2])


def _footer(one: Advice) -> Iterator[str]:
    found, lines = one.recommendation, []
    most = "up to " if found.num_workers.span else ""
    if found.memory is not None:
        in_shm = f", {size(found.shm)} of it in /dev/shm" if found.shm else ""
        lines.append(f"takes {most}{size(found.memory)} of memory{in_shm}")
    elif found.least_memory:
        lines.append(f"takes {most}{size(found.least_memory)} of memory, without its batches")
    lines += [f"cannot work as written: {told}" for told in one.unfit]
    lines += [f"does not fit: {told}" for told in found.refused]
    lines += [*found.warnings, *one.notes]
    if one.record:
        lines.append(f"rests on what was measured here (record {one.record})")
    if one.tuned is not None:
        lines.append(one.tuned.words)
    if one.rules:
        lines.append(f"`dlcheck` finds {', '.join(one.rules)} in it")
    if found.would_change:
        lines.append(f"what would change the answer: {', '.join(found.would_change)}")
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
        "rules": list(one.rules),
        "record": one.record,
        "tuned": _tuned(one.tuned) if one.tuned is not None else None,
    }


def _tuned(one: Tuned) -> dict[str, str]:
    return {"id": one.id, "date": one.date, "chosen": one.chosen, "advice": one.advice}


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
