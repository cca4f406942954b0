"""Calls that stop a training step: emptied caches, waits for the GPU, runs of the garbage collector."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dlcheck.facts import forms
from dlcheck.model.scopes import Site, last_name
from dlcheck.model.training.steps import Region, StepLoop, library_path

_DEVICES = ("torch.cuda", "torch.xpu", "torch.mps", "torch.npu", "torch.accelerator", "torch.accelerator.memory")

# What stops the step, by what the call does.
STALLS = {f"{device}.empty_cache": "cache" for device in _DEVICES}
STALLS |= {f"{device}.synchronize": "wait" for device in _DEVICES}
STALLS["gc.collect"] = "collect"

# Whoever measures must wait for the GPU first, and whoever shares memory between streams, too.
_MEASURES = frozenset(
    {"time", "perf_counter", "perf_counter_ns", "time_ns", "monotonic", "process_time", "default_timer", "Event",
     "elapsed_time", "record", "Stream", "stream", "wait_stream", "record_stream", "profile", "tic", "toc",
     "copy_", "cudart", "range_push", "range_pop", "Barrier", "barrier"}
)  # fmt: skip
_MEASURING_WORDS = frozenset({"time", "timer", "tic", "toc", "benchmark", "profiler", "prof", "stopwatch", "clock"})

# Whoever measures the memory of a single step starts each from a clean state.
_MEMORY_MEASURES = frozenset({"reset_peak_memory_stats", "reset_max_memory_allocated", "memory_stats", "mem_get_info"})


class Stall(NamedTuple):
    """A call that every step makes and that stops it; ``site`` is where the step's own code makes it."""

    kind: str  # cache | wait | collect
    path: str
    site: Site
    inside: Site  # the call itself, where a helper makes it


def stalls(loop: StepLoop) -> Iterator[Stall]:
    """The calls that stop each step of a loop; none where the loop measures something that needs them."""
    if loop.is_long():
        return
    regions = loop.regions()
    measures = _measuring(regions)
    for site, region in loop.calls_each_round():
        call = site.expr
        assert isinstance(call, forms.Call)
        if last_name(call.func) not in ("empty_cache", "synchronize", "collect"):
            continue
        path = library_path(loop.project, site)
        kind = STALLS.get(path)
        if kind is None or kind == "collect" and call.args or kind == "wait" and measures:
            continue
        if not _measures_memory(regions):
            yield Stall(kind, path, _in_step(loop, regions, site, region), site)


def _in_step(loop: StepLoop, regions: list[Region], site: Site, region: Region) -> Site:
    """The place in the step's own code, the loop or the function that goes backward, that leads to a call."""
    steps = {backward.scope for backward in loop.backward}
    while region.loop is None and region.scope not in steps and region.call is not None:
        site = region.call
        region = next(outer for outer in regions if site.link in outer.links)
    return site


def _measuring(regions: list[Region]) -> bool:
    return any(
        last_name(call.func) in _MEASURES
        or any(word in _MEASURING_WORDS for name in _named(call) for word in name.lower().split("_"))
        for region in regions
        for call in _calls(region)
    )


def _named(call: forms.Call) -> tuple[str, str]:
    """The name of a method and of what it is called on: ``timer.start()``, ``meter.iter_tic()``."""
    func = call.func
    return last_name(func), last_name(func.value) if isinstance(func, forms.Attr) else ""


def _measures_memory(regions: list[Region]) -> bool:
    return any(last_name(call.func) in _MEMORY_MEASURES for region in regions for call in _calls(region))


def _calls(region: Region) -> Iterator[forms.Call]:
    links = set(region.links)
    for site in region.module.calls:
        if site.link in links and isinstance(site.expr, forms.Call):
            yield site.expr
