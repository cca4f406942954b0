"""Which settings are worth a try on a machine, and which cannot fit into it: that is said, with the limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dlcheck.advise.tuning.setting import METHODS, PREFETCH, Setting, made

# Up to half as many workers again as there are cores: beyond that they only take turns.
STEPS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
MORE = 1.5
MOST = 64
WAITING = 7.0  # times its CPU time that a sample may wait: for each core as many workers more
SHARE = 0.8  # of what is free: more than that is not planned for
# Bytes that a worker takes for itself at least, whatever it loads: measured with torch 2.13 on Linux, and rounded down.
WORKER = {"fork": 20 << 20, "forkserver": 140 << 20, "spawn": 140 << 20}
NO_DEVICE = "pin_memory is left as it is: there is no CUDA device that pinned batches could be copied to"


@dataclass(frozen=True)
class Machine:
    """What one rank may have of it: cores, bytes, and whether there is a device.  None is unknown."""

    cores: float
    memory: int | None
    shm: int | None
    ranks: int = 1
    device: bool = False


@dataclass(frozen=True)
class Data:
    """What is known of the batches: bytes of one, batches of an epoch, seconds of CPU and of waiting of a sample.

    ``advised`` is how many workers a formula asks for that has all of this.
    """

    batch_bytes: int | None = None
    batches: int | None = None
    cpu_s: float | None = None
    wait_s: float | None = None
    advised: int | None = None


@dataclass(frozen=True)
class Wanted:
    """What was asked for; None where the machine decides."""

    workers: tuple[int, ...] | None = None
    prefetch: tuple[int, ...] | None = None
    pin: str = "auto"  # auto, both, on, off
    methods: tuple[str, ...] | None = None
    persistent: str = "auto"  # auto, on, off


@dataclass(frozen=True)
class Grid:
    """Settings to choose from, and a line for each limit that has removed some."""

    settings: tuple[Setting, ...]
    removed: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.settings)


def grid(wanted: Wanted, machine: Machine, data: Data, now: Setting, method: str, *, full: bool = False) -> Grid:
    """All settings of a search under one start method, or (``full``) of a sweep under all that are wanted.

    ``now`` is what the loader has: it is tried whatever the limits say, for it is what everything is compared with.
    """
    pins, lines = _pins(wanted, machine, now)
    workers = wanted.workers if wanted.workers is not None else _workers(machine, data, now)
    prefetch = wanted.prefetch or tuple(sorted({2, 4, now.prefetch or PREFETCH}))
    ways = _ways(wanted, now, method) if full else [(False, method)]
    every = {
        made(number, ahead, pin, persistent, how)
        for number in workers
        for ahead in prefetch
        for pin in pins
        for persistent, how in ways
    }
    kept, removed = _fitting(sorted(every, key=lambda one: one.cost), machine, data)
    here = now if full else steady(now, method)
    return Grid(tuple(sorted({*kept, here}, key=lambda one: one.cost)), (*lines, *removed))


def steady(setting: Setting, method: str) -> Setting:
    """A setting as far as it matters once the pipeline runs: how its workers were started does not."""
    return made(setting.workers, setting.prefetch, setting.pin, False, method)


def methods(wanted: Wanted, available: Sequence[str], now: str) -> list[str]:
    """The start methods to try, that of the loader first; raises ValueError for what this system has not."""
    for one in wanted.methods or ():
        if one not in available:
            raise ValueError(f"`{one}` is no start method of this system: it has {', '.join(available)}")
    given = list(wanted.methods or [one for one in METHODS if one in available])
    return sorted(given, key=lambda one: one != now)


def _ways(wanted: Wanted, now: Setting, method: str) -> list[tuple[bool, str]]:
    kinds = {"on": (True,), "off": (False,)}.get(wanted.persistent, (False, True))
    return [(kind, how) for kind in kinds for how in wanted.methods or (method,)]


def _pins(wanted: Wanted, machine: Machine, now: Setting) -> tuple[tuple[bool, ...], list[str]]:
    if wanted.pin == "off":
        return (False,), []
    if not machine.device:
        return (now.pin,), [NO_DEVICE]
    return ((True,) if wanted.pin == "on" else (False, True)), []


def _workers(machine: Machine, data: Data, now: Setting) -> tuple[int, ...]:
    """Powers of two and what lies between them, up to what the cores can keep busy."""
    idle = min(WAITING, data.wait_s / data.cpu_s) if data.cpu_s and data.wait_s else 0.0
    most = min(MOST, max(1, round(MORE * machine.cores * (1 + idle))))
    found = {one for one in STEPS if one <= most} | {most, now.workers}
    found |= {data.advised} if data.advised is not None and data.advised <= MOST else set()
    if data.batches:
        found = {one for one in found if one <= data.batches or one == now.workers}
    return tuple(sorted(found))


# What cannot fit


@dataclass(frozen=True)
class Limit:
    """Something of which a setting may not take more than ``most``."""

    name: str
    most: int
    taken: Callable[[Setting], int]
    words: Callable[[Setting], str]


def _fitting(settings: Iterable[Setting], machine: Machine, data: Data) -> tuple[list[Setting], list[str]]:
    kept, out = list(settings), []
    for limit in _limits(machine, data):
        gone = [one for one in kept if limit.taken(one) > limit.most]
        kept = [one for one in kept if limit.taken(one) <= limit.most]
        if gone:
            number = f"{len(gone)} setting{'' if len(gone) == 1 else 's'}"
            out.append(f"{number} removed by {limit.name}: {limit.words(gone[0])}")
    return kept, out


def _limits(machine: Machine, data: Data) -> Iterable[Limit]:
    size, ranks = data.batch_bytes or 0, machine.ranks
    of = f" on each of {ranks} ranks" if ranks > 1 else ""
    if data.batches:
        yield Limit(
            "the length of an epoch",
            data.batches,
            lambda one: one.workers,
            lambda one: f"{one.workers} workers for {data.batches} batches",
        )
    if machine.shm is not None and size:
        room = int(SHARE * machine.shm)
        yield Limit(
            "/dev/shm",
            room,
            lambda one: one.ahead * size * ranks,
            lambda one: f"{one.short} may hold {one.ahead} batches of {_mb(size)}{of}, and {_mb(room)} can be had",
        )
    if machine.memory is not None:
        room = int(SHARE * machine.memory)
        yield Limit(
            "memory",
            room,
            lambda one: _memory(one, size) * ranks,
            lambda one: f"{one.short} take at least {_mb(_memory(one, size))}{of}, and {_mb(room)} can be had",
        )


def _memory(one: Setting, size: int) -> int:
    """Bytes that a setting takes at least; pinned batches are there twice."""
    return one.workers * WORKER.get(one.method or "fork", WORKER["spawn"]) + one.ahead * size * (2 if one.pin else 1)


def _mb(size: int) -> str:
    return f"{size / 1e6:.3g} MB"
