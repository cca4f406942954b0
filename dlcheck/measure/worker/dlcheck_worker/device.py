"""Where batches go: a GPU, or the host itself where there is none.

Both backends take the same calls, so that one code path serves both.  The host's does real work (copies
of the same bytes, the same multiplications), which is enough to test arms, checksums and records; what only
a GPU can show it declares missing, and nothing that needs it is decided.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from typing import Any

import torch

from . import nvidia

CUDA: Any = torch.cuda  # some of its classes have no types

FLAGS = {
    "async_copies": "a device that copies and computes while the host goes on",
    "can_pin": "page-locked memory",
}

# What changes how torch launches, copies and allocates.
VARIABLES = (
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_VISIBLE_DEVICES",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
)


class Clock:
    """The host's stand-in for a CUDA event: work is done when it is recorded."""

    def __init__(self) -> None:
        self.time = 0.0

    def record(self, stream: Any = None) -> None:
        self.time = time.perf_counter()

    def elapsed_time(self, end: Clock) -> float:
        """Milliseconds, as CUDA's events tell them."""
        return (end.time - self.time) * 1e3


class CpuBackend:
    """The host as its own device: all work is done when a call returns."""

    name = "cpu"
    async_copies = False
    can_pin = False

    def __init__(self) -> None:
        self.device = torch.device("cpu")

    def event(self) -> Any:
        """Marks a point of the current stream; ``a.elapsed_time(b)`` is known after ``sync``."""
        return Clock()

    def stream(self) -> Any:
        return None

    def on(self, stream: Any) -> contextlib.AbstractContextManager[Any]:
        """Work inside goes to ``stream``; None leaves the current one."""
        return contextlib.nullcontext()

    def wait(self, event: Any) -> None:
        """What the current stream gets from here on comes after the event; the host does not wait."""

    def sync(self) -> None:
        """The host waits until the device has nothing left to do."""

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def h2d(self, tensor: torch.Tensor, non_blocking: bool) -> torch.Tensor:
        """The batch on the device, in memory of the current stream."""
        return tensor.clone()

    def keep(self, tensor: torch.Tensor) -> None:
        """The current stream uses memory of another: it is not given away before that work is done."""

    def empty_cache(self) -> None:
        """Give what the allocator keeps back to the device."""

    def allocations(self) -> dict[str, int] | None:
        """How often the device's own allocator was asked, and what is reserved; None where nobody counts."""
        return None

    def free_bytes(self) -> int | None:
        """Memory of the device that this process could still use; None where it is the host's."""
        return None

    def ready_pinned(self, like: torch.Tensor, number: int) -> None:
        """Page-locked memory for so many batches, in the allocator's cache: locking it takes longer than any copy."""

    def state(self) -> dict[str, Any] | None:
        """What changes from minute to minute and decides how fast the device is."""
        return None

    def facts(self) -> dict[str, Any]:
        return {
            "device": self.name,
            "name": platform.processor() or platform.machine(),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "async_copies": self.async_copies,
            "can_pin": self.can_pin,
        }


class CudaBackend(CpuBackend):
    """One GPU, by its index among those that are visible."""

    name = "cuda"
    can_pin = True

    def __init__(self, index: int = 0) -> None:
        # A variable for debugging: with it, every call waits for the device.
        self.async_copies = os.environ.get("CUDA_LAUNCH_BLOCKING", "0") in ("", "0")
        self.device = torch.device("cuda", index)
        # The current stream, and with it where events are recorded, follows the current device.
        torch.cuda.set_device(self.device)
        torch.zeros(1, device=self.device)
        self.properties = torch.cuda.get_device_properties(self.device)
        self.watch = nvidia.Watch(nvidia.address_of(self.properties, index))

    def event(self) -> Any:
        return CUDA.Event(enable_timing=True)

    def stream(self) -> Any:
        return CUDA.Stream(self.device)

    def on(self, stream: Any) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if stream is None else torch.cuda.stream(stream)

    def wait(self, event: Any) -> None:
        torch.cuda.current_stream(self.device).wait_event(event)

    def sync(self) -> None:
        torch.cuda.synchronize(self.device)

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory()

    def h2d(self, tensor: torch.Tensor, non_blocking: bool) -> torch.Tensor:
        return tensor.to(self.device, non_blocking=non_blocking)

    def keep(self, tensor: torch.Tensor) -> None:
        tensor.record_stream(torch.cuda.current_stream(self.device))

    def empty_cache(self) -> None:
        torch.cuda.empty_cache()

    def allocations(self) -> dict[str, int] | None:
        stats = torch.cuda.memory_stats(self.device)
        # Before torch 2.3 nobody counted these; segments come and go with the calls that make and free them.
        return {
            "allocated": int(stats.get("num_device_alloc", stats.get("segment.all.allocated", 0))),
            "freed": int(stats.get("num_device_free", stats.get("segment.all.freed", 0))),
            "reserved": int(stats.get("reserved_bytes.all.current", 0)),
            "peak": int(stats.get("reserved_bytes.all.peak", 0)),
        }

    def free_bytes(self) -> int | None:
        free, _ = torch.cuda.mem_get_info(self.device)
        cached = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return int(free) + cached

    def ready_pinned(self, like: torch.Tensor, number: int) -> None:
        made = [torch.empty(like.shape, dtype=like.dtype, pin_memory=True) for _ in range(number)]
        del made

    def state(self) -> dict[str, Any] | None:
        return self.watch.state() or self._state_by_torch()

    def _state_by_torch(self) -> dict[str, Any] | None:
        """The same through NVML, where torch finds it and there is no nvidia-smi."""
        names = {"sm_mhz": "clock_rate", "celsius": "temperature", "utilization": "utilization"}
        try:
            return {key: float(getattr(torch.cuda, name)(self.device)) for key, name in names.items()}
        except Exception:  # noqa: BLE001 -- no bindings, no permission, not supported: each raises its own
            return None

    def facts(self) -> dict[str, Any]:
        properties = self.properties
        return {
            **super().facts(),
            "name": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "memory": properties.total_memory,
            "cuda": torch.version.cuda,
            "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
            "address": self.watch.address,
            "link": nvidia.link_of(properties.name, self.watch.address) or self.watch.link(),
            "card": self.watch.card(),
        }


def backend_of(name: str | None = None) -> CpuBackend:
    """The backend that is asked for; without a name, a GPU where there is one."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.partition(":")[0] == "cuda":
        return CudaBackend(int(name.partition(":")[2] or 0))
    if name != "cpu":
        raise ValueError(f"no device `{name}`: cpu, cuda, cuda:1")
    return CpuBackend()
