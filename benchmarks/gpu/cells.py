"""What is measured: each cell is one experiment with one setting, its arms, and the comparisons it is there for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

KIB, MIB = 1 << 10, 1 << 20

TRANSFERS: dict[str, dict[str, Any]] = {
    "pageable": {},
    "pageable_nb": {"non_blocking": True},
    "pinned": {"pinned": True},
    "pinned_nb": {"pinned": True, "non_blocking": True},
    "pinned_nb_side": {"pinned": True, "non_blocking": True, "side_stream": True},
    "pin_and_copy": {"pin_and_copy": True, "non_blocking": True},
}
# Wrong on purpose: it computes without waiting for the copy, and the sums must show that.
WITHOUT_WAIT = {"pinned": True, "non_blocking": True, "side_stream": True, "wait_event": False}
COPIES: dict[str, dict[str, Any]] = {
    name: TRANSFERS[name] for name in ("pageable", "pageable_nb", "pinned", "pinned_nb")
}
LOADING: dict[str, dict[str, Any]] = {
    "plain": {},
    "pinned": {"pinned": True},
    "pinned_nb": {"pinned": True, "non_blocking": True},
    "nb_only": {"non_blocking": True},
    "pinned_nb_side": {"pinned": True, "non_blocking": True, "side_stream": True},
    "replay": {"pinned": True, "non_blocking": True, "side_stream": True, "replay": True},
}
ITEM: dict[str, dict[str, Any]] = {
    "every": {"sync": "item", "every": 1},
    "interval": {"sync": "item", "every": 25},
    "never": {"sync": "none", "every": 0},
}
STALLS: dict[str, dict[str, Any]] = {
    "none": {"sync": "none", "every": 0},
    "synchronize": {"sync": "synchronize", "every": 1},
    "print": {"sync": "print", "every": 1},
    "cpu": {"sync": "cpu", "every": 1},
}


@dataclass(frozen=True)
class Pair:
    """A against B; with a code, B is what that rule suggests."""

    a: str
    b: str
    code: str = ""
    rule: str = ""


MISSING_PIN = ("DLC103", "missing-pin-memory")
BLOCKING = ("DLC101", "blocking-transfer-of-pinned-batch")
USELESS_NON_BLOCKING = ("DLC102", "non-blocking-without-pin")
INLINE_PIN = ("DLC104", "inline-pin-memory")
THEN_MOVE = ("DLC111", "host-tensor-then-move")
SYNC = ("DLC501", "sync-every-step")
STALL = ("DLC502", "stall-call-in-loop")
CONSTANT = ("DLC112", "loop-invariant-transfer")
CAST = ("DLC113", "cast-before-transfer")
CLOCK = ("DLC507", "unsynchronised-gpu-timing")


@dataclass(frozen=True)
class Cell:
    """``same`` names two arms with equal settings: what the machine makes of nothing. ``control`` must go wrong."""

    group: str
    setting: str
    experiment: str
    config: Mapping[str, Any]
    arms: Mapping[str, Mapping[str, Any]]
    pairs: tuple[Pair, ...] = ()
    same: Pair | None = None
    control: Mapping[str, Any] | None = None
    passes: int = 2
    warm_steps: int = 5

    @property
    def name(self) -> str:
        return f"{self.group} {self.setting}".strip()


# Of a round's time, by group.
SHARES = {
    "C1": 0.10, "C2": 0.42, "C3": 0.13, "C4": 0.12, "C5": 0.05, "C6": 0.04, "C7": 0.03, "C8": 0.04,
    "C9": 0.03, "C10": 0.03, "C11": 0.01,
}  # fmt: skip


def with_same(arms: Mapping[str, Mapping[str, Any]], name: str) -> tuple[dict[str, Mapping[str, Any]], Pair]:
    """The arms and one of them a second time."""
    return {**arms, "again": arms[name]}, Pair(name, "again")


def available() -> int:
    """Bytes of memory that are free on the host."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 4 << 30


def cells(quick: bool, memory: int) -> Iterator[Cell]:
    """All of them, in order; ``quick`` makes each so small that it only shows that the path works.

    ``memory`` is what is free on the host before the first round: all rounds measure the same sizes.
    """
    yield from bandwidth(quick, memory)
    yield from overlap(quick, memory)
    yield from loading(quick)
    yield from items(quick)
    yield from others(quick)
    yield from detours(quick)


def bandwidth(quick: bool, memory: int) -> Iterator[Cell]:
    area = 8 * MIB if quick else min(1024 * MIB, memory // 16)
    sizes = [4 * KIB, MIB] if quick else [4**power * KIB for power in range(1, 10) if 4**power * KIB <= area // 2]
    for size in sizes:
        yield Cell(
            "C1",
            f"{size // KIB} KiB" if size < MIB else f"{size // MIB} MiB",
            "bandwidth",
            {"bytes": size, "area": area, "block_s": 0.002 if quick else 0.03, "warm_s": 0.002 if quick else 0.02},
            COPIES,
            (Pair("pageable", "pinned"),),
            passes=1,
        )


def overlap(quick: bool, memory: int) -> Iterator[Cell]:
    size = MIB // 2 if quick else min(64 * MIB, memory // 128)
    shared = {"bytes": size, "buffers": 4 if quick else 8, "block_s": 0.01 if quick else 0.2}
    shared |= {"steps": 5, "warm_s": 0.002} if quick else {"steps": 20}
    arms, same = with_same(TRANSFERS, "pinned_nb")
    pairs = (
        Pair("pageable", "pinned", *MISSING_PIN),
        Pair("pinned", "pinned_nb", *BLOCKING),
        Pair("pageable", "pageable_nb", *USELESS_NON_BLOCKING),
        Pair("pin_and_copy", "pinned_nb", *INLINE_PIN),
        Pair("pinned_nb", "pinned_nb_side"),
    )
    settings = (
        [(1.0, 0.0), (1.0, 1.2)] if quick else [(phi, host) for phi in (0.25, 1.0, 4.0) for host in (0.0, 0.5, 1.2)]
    )
    for phi, host in settings:
        twice = phi == 1.0 and host == 0.0
        yield Cell(
            "C2",
            f"K = {phi:g} C, c = {host:g} K",
            "transfer",
            {**shared, "phi": phi, "host_of_compute": host},
            arms if twice else TRANSFERS,
            pairs,
            same if twice else None,
            WITHOUT_WAIT,
        )


def loading(quick: bool) -> Iterator[Cell]:
    workers = 1 if quick else max(1, min(8, (os.cpu_count() or 2) - 2))
    loader: dict[str, Any] = {"batch_size": 4 if quick else 128, "num_workers": workers}
    if hasattr(os, "fork"):
        loader["multiprocessing_context"] = "fork"  # workers touch no device; others start for seconds in each block
    config: dict[str, Any] = {"loader": loader, "shape": (3, 16, 16) if quick else (3, 112, 112)}
    config |= {"compute_s": 0.0005 if quick else 0.005, "steps": 4 if quick else 30}
    config |= {"warm_s": 0.002} if quick else {}
    arms, same = with_same(LOADING, "pinned")
    pairs = (
        Pair("plain", "pinned", *MISSING_PIN),
        Pair("pinned", "pinned_nb", *BLOCKING),
        Pair("plain", "nb_only", *USELESS_NON_BLOCKING),
        Pair("pinned_nb", "pinned_nb_side"),
        Pair("plain", "replay"),
    )
    passes = 1 if quick else 2
    # Each block begins with batches that are not timed, so none is needed before them.
    yield Cell("C3", f"{workers} workers", "loading", config, arms, pairs, same, passes=passes, warm_steps=0)


def items(quick: bool) -> Iterator[Cell]:
    arms, same = with_same(ITEM, "never")
    settings = [
        (kernels, ratio, host)
        for kernels in ((20,) if quick else (20, 200))
        for ratio in ((1.0,) if quick else (0.2, 1.0, 5.0))
        for host in ((1.0,) if quick else (0.0, 1.0))
    ]
    for kernels, ratio, host in settings:
        config: dict[str, Any] = {"kernels": kernels, "compute_of_launch": ratio, "host_of_step": host}
        config |= {"block_s": 0.005, "warm_s": 0.002, "most": 1 << 14} if quick else {"block_s": 0.1, "warm_s": 0.02}
        twice = ratio == 1.0 and host == 1.0
        yield Cell(
            "C4",
            f"{kernels} kernels, K = {ratio:g} L, c = {host:g} step",
            "sync",
            config,
            arms if twice else ITEM,
            (Pair("every", "interval", *SYNC), Pair("every", "never")),
            same if twice else None,
        )


def others(quick: bool) -> Iterator[Cell]:
    short: dict[str, Any] = {"steps": 5, "block_s": 0.005, "warm_s": 0.002} if quick else {"block_s": 0.1}
    few: dict[str, Any] = {"sizes": [4 * KIB, 64 * KIB, MIB]} if quick else {}
    arms, same = with_same({"keeps": {}, "empties": {"empty_cache": True}}, "keeps")
    yield Cell("C5", "", "empty-cache", {**short, **few}, arms, (Pair("empties", "keeps", *STALL),), same)

    grains = {grain: {"grain": grain} for grain in ("sample", "batch", "packed")}
    arms, same = with_same(grains, "batch")
    counts = [(8, 4, 256)] if quick else [(64, 4, 1024), (256, 8, 256)]
    for samples, tensors, floats in counts:
        config = {**short, "samples": samples, "tensors": tensors, "floats": floats}
        setting = f"{samples} samples of {tensors} tensors of {4 * floats} B"
        pairs: tuple[Pair, ...] = (Pair("sample", "batch"), Pair("batch", "packed"))
        yield Cell("C6", setting, "small-copies", config, arms, pairs, same)

    arms, same = with_same({"then_move": {}, "on_device": {"on_device": True}}, "on_device")
    for make, number in (("tensor", 10_000), ("arange", 10_000 if quick else 4_000_000)):
        config = {**short, "make": make, "number": number}
        pairs = (Pair("then_move", "on_device", *THEN_MOVE),)
        yield Cell("C7", f"{make} of {number}", "making", config, arms, pairs, same)

    arms, same = with_same(STALLS, "none")
    config = {"kernels": 50, "compute_of_launch": 1.0, "host_of_step": 0.5, **short}
    config |= {"most": 1 << 14} if quick else {}
    pairs = (Pair("synchronize", "none", *STALL), Pair("print", "none", *SYNC), Pair("cpu", "none", *SYNC))
    yield Cell("C8", "50 kernels, K = L, c = 0.5 step", "sync", config, arms, pairs, same)


def detours(quick: bool) -> Iterator[Cell]:
    """What a step need not do on the host, or not again and again."""
    short: dict[str, Any] = {"steps": 5, "block_s": 0.005, "warm_s": 0.002} if quick else {"block_s": 0.1}
    arms, same = with_same({"each": {}, "once": {"once": True}}, "once")
    for host in (0.5,) if quick else (0.0, 0.5):
        config = {"kernels": 50, "compute_of_launch": 1.0, "host_of_step": host, **short}
        config |= {"most": 1 << 14} if quick else {}
        pairs = (Pair("each", "once", *CONSTANT),)
        yield Cell("C9", f"50 kernels, K = L, c = {host:g} step", "constants", config, arms, pairs, same)

    arms, same = with_same({"host": {}, "device": {"on_device": True}}, "device")
    size = 64 * KIB if quick else 64 * 3 * 224 * 224
    for phi in (1.0,) if quick else (1.0, 16.0):
        config = {"bytes": size, "phi": phi, **short}
        yield Cell("C10", f"K = {phi:g} C", "casts", config, arms, (Pair("host", "device", *CAST),), same)

    arms, same = with_same({"at_once": {}, "waits": {"synchronised": True}}, "at_once")
    config = {"work_s": 0.0005 if quick else 0.005, **short}
    yield Cell("C11", "", "clocks", config, arms, (Pair("at_once", "waits", *CLOCK),), same)
