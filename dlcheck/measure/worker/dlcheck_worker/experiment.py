"""What all experiments with a device have in common: arms that are data, and blocks with one wait at their end."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Mapping
from typing import Any, ClassVar

from .compute import quiet
from .device import FLAGS
from .rig import Rig


class Experiment:
    """Arms that do the same arithmetic in different ways, timed block by block.

    An arm is a dataclass made from a mapping, never from its name: an arm that is called
    `no pinned memory` pins nothing unless its mapping says so.
    """

    evidence = "synthetic"
    unit: ClassVar[str] = "s/step"
    arm_type: ClassVar[type[Any]]
    needs: ClassVar[tuple[str, ...]] = ("async_copies",)
    default_arms: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init__(self, config: Mapping[str, Any], rig: Rig) -> None:
        self.config = dict(config)
        self.rig = rig
        self.backend = rig.backend
        self.arms: dict[str, Any] = {}
        for name, arm in (self.config.get("arms") or self.default_arms).items():
            self.add(name, arm)

    def add(self, name: str, config: Mapping[str, Any]) -> None:
        """Another arm; a ValueError where it names something that this experiment does not have."""
        known = {field.name for field in dataclasses.fields(self.arm_type)}
        unknown = sorted(set(config) - known)
        if unknown:
            raise ValueError(f"arm `{name}`: no setting {', '.join(unknown)}; there are {', '.join(sorted(known))}")
        self.arms[name] = self.arm_type(**config)

    def missing(self) -> list[str]:
        """What this device lacks: with anything in this list, times decide nothing."""
        return [FLAGS[flag] for flag in self.needs if not getattr(self.backend, flag)]

    def block(self, name: str, steps: int | None = None) -> dict[str, Any]:
        """One timed block: ``t`` in the unit, and ``ok``, whether the device read the right bytes."""
        arm = self.arms[name]
        gc.collect()
        number = steps or self.steps(arm)
        self.prepare(arm, number)
        self.rig.compute.clear()
        self.rig.compute.warm(self.config.get("warm_s", 0.05))
        with quiet():
            found = self.timed(arm, number)
        found.update(self.check(arm, number))
        found["steps"] = number
        return found

    def steps(self, arm: Any) -> int:
        """Steps of a block: enough for ``block_s`` seconds, and never less than ``steps``."""
        least = int(self.config.get("steps", 30))
        expected = self.expected_s(arm)
        return max(least, round(self.config.get("block_s", 0.2) / expected)) if expected > 0 else least

    def expected_s(self, arm: Any) -> float:
        """About how long a step takes; 0 where nobody knows."""
        return 0.0

    def prepare(self, arm: Any, steps: int) -> None:
        """What a block needs and does not count."""

    def timed(self, arm: Any, steps: int) -> dict[str, Any]:
        raise NotImplementedError

    def check(self, arm: Any, steps: int) -> dict[str, Any]:
        """``ok`` and what else is read from the device after a block."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """What was calibrated, and whether times decide anything here."""
        compute = self.rig.compute
        return {
            "device": self.backend.name,
            "unit": self.unit,
            "missing": self.missing(),
            "multiplication_s": compute.per_s,
            "launch_s": compute.launch_s,
            "clocks_settled": compute.settled,
        }
