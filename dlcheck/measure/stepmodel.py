"""What a training step should take, from what its parts take: printed beside every measured figure.

A step's parts run in three places: the host, the device, and the link between them.  Which of them wait for
which is what `pin_memory`, `non_blocking` and a side stream change, and all that they change; so the terms,
each measured apart, say beforehand what any of these can gain, and afterwards whether a measurement can be true.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

TOLERANCE = 0.05  # a figure may be better than the limit by so much before it is taken for an error


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds of each part of a step.

    ``host``: the loader's ``next`` and the loop's Python; ``launch``: putting the step's kernels in the queue;
    ``compute``: what the device does with them; ``copy``: of a page-locked batch; ``pageable``: of one that is not,
    staging included; ``pin``: the host's copy of a batch into page-locked memory.
    """

    compute: float
    copy: float
    pageable: float
    host: float = 0.0
    launch: float = 0.0
    pin: float = 0.0

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Terms:
        """From what a worker tells; terms that it adds are not of this model."""
        return cls(**{name: float(found[name]) for name in cls.__dataclass_fields__ if name in found})

    @property
    def prepared(self) -> float:
        """What the host does by itself for one step."""
        return self.host + self.launch


@dataclass(frozen=True, slots=True)
class Transfer:
    """How a batch is moved; ``pin_thread``: a loader with ``pin_memory=True`` makes the page-locked copy."""

    pinned: bool = False
    non_blocking: bool = False
    side_stream: bool = False
    pin_and_copy: bool = False
    pin_thread: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Transfer:
        """From an arm's settings; settings of other experiments say nothing here."""
        return cls(**{name: bool(config[name]) for name in cls.__dataclass_fields__ if name in config})


def predicted(terms: Terms, transfer: Transfer) -> float:
    """Seconds of a step once the pipeline is full.

    A copy from pageable memory waits for the work before it and holds the host until it is staged, whatever
    ``non_blocking`` says; one from page-locked memory does so only where it blocks.  On the stream of the work
    a copy has its turn; on another it runs beside it.
    """
    inline = terms.pin if transfer.pin_and_copy else 0.0
    thread = terms.pin if transfer.pin_thread else 0.0
    host = terms.prepared + inline
    if not (transfer.pinned or transfer.pin_and_copy):
        return max(host, terms.compute) + terms.pageable
    if not transfer.non_blocking:
        return max(host, terms.compute, thread) + terms.copy
    if transfer.side_stream:
        return max(host, terms.copy, terms.compute, thread)
    return max(host, terms.copy + terms.compute, thread)


def predictions(terms: Terms, arms: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Seconds of a step by the name of the arm."""
    return {name: predicted(terms, Transfer.of(config)) for name, config in arms.items()}


def least(terms: Terms) -> float:
    """No transfer makes a step shorter: host, device and link each have that much to do."""
    return max(terms.prepared, terms.copy, terms.compute)


def largest_gain(terms: Terms) -> float:
    """By what factor the best transfer could shorten a step with pageable batches."""
    best = least(terms)
    return predicted(terms, Transfer()) / best if best > 0 else 1.0


def gain_of_non_blocking(terms: Terms) -> float:
    """Seconds that `non_blocking=True` saves on the same stream: nothing while the host is the quicker side."""
    return predicted(terms, Transfer(pinned=True)) - predicted(terms, Transfer(pinned=True, non_blocking=True))


def is_impossible(measured: float, limit: float, tolerance: float = TOLERANCE) -> bool:
    """Whether a figure is better than physics allows: then a wait for the device is missing somewhere."""
    return measured < limit * (1 - tolerance)


def is_impossible_rate(measured: float, limit: float, tolerance: float = TOLERANCE) -> bool:
    """The same for a rate, of which more is better."""
    return measured > limit * (1 + tolerance)


def error(measured: float, prediction: float) -> float:
    """By what share of the measured figure the model is off, with its sign: above 0 it promised too long a step."""
    return (prediction - measured) / measured


@dataclass(frozen=True, slots=True)
class SyncTerms:
    """Seconds of the parts of a step whose loss the host may wait for; ``sync``: asking, with nothing to wait for."""

    compute: float
    launch: float
    host: float = 0.0
    sync: float = 0.0

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> SyncTerms:
        return cls(**{name: float(found[name]) for name in cls.__dataclass_fields__ if name in found})

    @property
    def prepared(self) -> float:
        return self.host + self.launch


def synced(terms: SyncTerms, every: int) -> float:
    """Seconds of a step whose host waits for the device at every so many steps; 0: never.

    Within a step launching and computing overlap all the same.  What a wait costs is that the device idles while
    the host does its own share of the next step, and the asking.
    """
    free = max(terms.prepared, terms.compute)
    if every == 0:
        return free
    waiting = terms.host + max(terms.launch, terms.compute) + terms.sync
    return free + (waiting - free) / every


def largest_share_of_syncs(terms: SyncTerms) -> float:
    """The most of a step that a wait can cost: it is all where host and device do the same, one after the other."""
    both = terms.prepared + terms.compute + terms.sync
    return (min(terms.prepared, terms.compute) + terms.sync) / both if both > 0 else 0.0


def with_constant(terms: SyncTerms, making: float, moving: float) -> float:
    """Seconds of a step that first makes a constant on the host and moves it: the copy waits for the step before."""
    return max(terms.prepared + making, terms.compute) + moving


def with_cast(terms: Terms, cast: float, device_cast: float, *, on_device: bool) -> float:
    """Seconds of a step whose page-locked bytes become floats: there, or here in memory that is not page-locked."""
    if on_device:
        there = replace(terms, compute=terms.compute + device_cast)
        return predicted(there, Transfer(pinned=True, non_blocking=True))
    return predicted(replace(terms, host=terms.host + cast), Transfer())


def of_arm(experiment: str, terms: Mapping[str, Any], arm: Mapping[str, Any]) -> float | None:
    """Seconds of a step of an arm of one of the worker's experiments; None where no model speaks of it."""
    if experiment == "transfer":
        return predicted(Terms.of(terms), Transfer.of(arm))
    if experiment == "sync":
        return synced(SyncTerms.of(terms), arm.get("every", 1) if arm.get("sync", "item") != "none" else 0)
    if experiment == "constants":
        each = SyncTerms.of(terms)
        return synced(each, 0) if arm.get("once") else with_constant(each, terms["making"], terms["moving"])
    if experiment == "casts":
        return with_cast(Terms.of(terms), terms["cast"], terms["device_cast"], on_device=bool(arm.get("on_device")))
    return None
