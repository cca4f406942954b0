"""What a finding asks of an experiment, and what is known of its loader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dlcheck.findings import Finding
from dlcheck.measure.record import Experiment, Fact, Metric

PER_EPOCH = Metric("epoch", "s/epoch", "additive")
EPOCH = Metric("epoch", "s/epoch", "ratio")
STEP = Metric("step", "s/step", "ratio")
PER_STEP = Metric("step", "s/step", "additive")
ADDED = Metric("memory that the workers add", "bytes", "memory")
IN_FLIGHT = Metric("shared memory in flight", "bytes", "memory")

# Of a stretch of the program's own loop: the memory that its steps add, or how long one statement takes.
Gauge = Literal["", "memory", "statement"]

AT_MOST = "at most"  # a step that nobody watches, less all of a statement's time, watching it included

SHAPE = (3, 64, 64)
STEPS = 200  # of a training whose memory grows


@dataclass(frozen=True)
class Template:
    """What a rule asks for.

    ``written`` and ``suggested`` are what the arms' configs have besides the workload's; ``block`` is
    the worker's name of what is timed.  ``parallel``: the answer depends on how many cores are free.
    ``cost_decides``: a stand-in whose samples cost nothing would turn the answer round.
    ``dataset`` is the stand-in's; ``extract``: whether the arms can be built of the user's own loader;
    ``same_batches``: whether both arms must give the same; ``in_vivo``: whether they can take turns in
    feeding the program's own loop, and ``gauge`` what its stretches are measured by there, where that is not
    time; ``loads``: whether arms have loaders at all.  ``device``: the worker's name of an experiment with a
    CUDA device, whose arms are its own; ``cuda``: whether only such a device shows it.
    """

    experiment: Experiment
    metric: Metric
    block: str
    written: Mapping[str, Any] = field(default_factory=dict)
    suggested: Mapping[str, Any] = field(default_factory=dict)
    controls: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    dataset: Mapping[str, Any] = field(default_factory=lambda: {"kind": "shaped", "shape": SHAPE})
    sized: str = ""
    blocks: int | None = None
    warm_ups: int = 1
    parallel: bool = False
    cost_decides: bool = False
    extract: bool = True
    same_batches: bool = True
    in_vivo: bool = False
    gauge: Gauge = ""
    loads: bool = True
    device: str = ""
    cuda: bool = False

    @property
    def only_in_its_loop(self) -> bool:
        """Whether nothing else will do where the program's own loop was meant, and cannot be fed."""
        return bool(self.device) or self.gauge == "statement"


@dataclass(frozen=True)
class Subject:
    """What is known of the loader that a finding is about, as the model described it, or as it was when it ran."""

    finding: Finding
    described: Mapping[str, Any]
    live: Mapping[str, Any] = field(default_factory=dict)  # its options in the running program
    cores: float = 1
    start_method: str = ""  # of the interpreter that runs it
    measured: Mapping[str, Any] = field(default_factory=dict)  # of its samples

    def option(self, name: str, default: Any) -> Any:
        return self.fact(name, default).value

    def fact(self, name: str, default: Any) -> Fact:
        """The value of a loader's option, and where it is known from."""
        if self.live.get(name) is not None:
            return Fact(self.live[name], "measured")
        options: Mapping[str, Any] = self.described.get("options", {})
        if options.get(name) is not None:
            return Fact(options[name], "static")
        # Of several known values the largest is what the fault is about: workers rather than none.
        candidates = [one for one in self.described.get("candidates", {}).get(name, ()) if isinstance(one, (int, str))]
        if candidates:
            return Fact(max(candidates, key=lambda one: (isinstance(one, int), one)), "static")
        return Fact(default, "default")

    @property
    def workers(self) -> int:
        """Of a finding about workers: as written, else two."""
        return max(1, int(self.option("num_workers", 2)))

    @property
    def context(self) -> str:
        """The start method that is written, or in force."""
        written = self.option("multiprocessing_context", None)
        return written if isinstance(written, str) else self.start_method

    @property
    def epochs(self) -> int | None:
        """How often the program goes through the loader; of a running one, whose options may say otherwise, unknown."""
        free = self.is_live and self.described.get("epochs_free")
        return None if free else self.described.get("epochs")

    @property
    def variant(self) -> str:
        """Which of the things that its rule looks for the finding is about."""
        return str(self.described.get("variant", ""))

    @property
    def about(self) -> Mapping[str, Any]:
        """What its rule says of the fault besides the loader."""
        known: Mapping[str, Any] = self.described.get("about", {})
        return known

    @property
    def is_live(self) -> bool:
        return bool(self.live)
