"""Small steps in the place of the user's: what training leaves in memory, and what an evaluation holds meanwhile.

Memory is what was asked for and not given back, of a GPU where there is one: exact, whatever an allocator keeps.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from . import memory

now = time.perf_counter
STEPS = 200  # of training, and as many layers as makes the nodes of a graph count
LAYERS = 64
BATCHES = 40  # of an evaluation whose outputs are kept
WARM = 5
WIDTH = 64
LEAST = 1 << 16  # bytes: less than this any program adds by itself
KEPT = ("graph", "output", "copy")


def network(layers: int) -> nn.Sequential:
    return nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh())))


def summed_losses(arm: Any) -> dict[str, Any]:
    """Bytes that steps add whose loss is added up: with its graph, or ``detached``."""
    net, rows = network(LAYERS), torch.ones(8, WIDTH)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    detached = bool(arm.config.get("detached"))
    total = torch.zeros(())

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = net(rows).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return total + (loss.detach() if detached else loss)

    for _ in range(WARM):
        total = step()
    held = Held(torch.device("cpu"))
    for _ in range(STEPS):
        total = step()
    return {"t": held.more(), "n": STEPS, "spec": []}


def kept_outputs(arm: Any) -> dict[str, Any]:
    """Bytes that an evaluation adds which keeps of each batch its output ``graph`` and all, the ``output``, or a
    ``copy`` on the host; on a GPU, those of its memory."""
    keeps = arm.config["keeps"]
    if keeps not in KEPT:
        raise ValueError(f"nothing to keep called `{keeps}`: {', '.join(KEPT)}")
    device = _device()
    net, rows = network(8).to(device).eval(), torch.ones(4096, WIDTH, device=device)
    kept: list[torch.Tensor] = []
    with contextlib.nullcontext() if keeps == "graph" else torch.no_grad():
        for _ in range(WARM):
            net(rows)
        held = Held(device)
        for _ in range(BATCHES):
            output = net(rows)
            kept.append(output.cpu() if keeps == "copy" else output)
        return {"t": held.more(), "n": BATCHES, "spec": []}


def recorded_evaluation(arm: Any) -> dict[str, Any]:
    """Bytes that the forward pass of an evaluation holds at its most, gradients on or off; and its seconds."""
    device = _device()
    net, rows = network(20).to(device).eval(), torch.ones(16384, WIDTH, device=device)
    with torch.no_grad() if arm.config.get("no_grad") else contextlib.nullcontext():
        net(rows[:64])
        held = Held(device)
        with held.watching(net):
            net(rows)
        most = held.most()
        start = now()
        for _ in range(2):
            net(rows)
        _finish(device)
    return {"t": most, "compute": (now() - start) / 2, "n": 1, "spec": []}


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Held:
    """The memory that is held beyond what was when this was made."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device if device.type == "cuda" else None
        self._host = memory.Allocated(torch)
        self._highest = self._before = self._now()
        if self._cuda is not None:
            torch.cuda.reset_peak_memory_stats(self._cuda)

    def _now(self) -> int:
        return self._host.read() if self._cuda is None else int(torch.cuda.memory_allocated(self._cuda))

    def more(self) -> int:
        """By now."""
        return max(self._now() - self._before, LEAST)

    def most(self) -> int:
        """At any time; of the host's, as it was after each layer that was watched."""
        highest = self._highest if self._cuda is None else int(torch.cuda.max_memory_allocated(self._cuda))
        return max(highest - self._before, LEAST)

    @contextlib.contextmanager
    def watching(self, layers: Iterable[nn.Module]) -> Iterator[None]:
        hooks = [layer.register_forward_hook(self._look) for layer in layers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _look(self, *_: Any) -> None:
        self._highest = max(self._highest, self._now())


BLOCKS = {
    "summed-losses": summed_losses,
    "kept-outputs": kept_outputs,
    "recorded-evaluation": recorded_evaluation,
}
