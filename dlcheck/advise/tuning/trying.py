"""Settings tried one by one on a process that holds the loader: a block each time, and a row for each setting."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dlcheck.advise.tuning.bounds import PASSED
from dlcheck.advise.tuning.hosts import Opener
from dlcheck.advise.tuning.result import Row, Start
from dlcheck.advise.tuning.setting import Setting
from dlcheck.measure.children import Failed, Host

BLOCK_S = 0.4  # of a stretch: shorter ones are the scheduler's
ANSWER_S = 60.0  # that a block may take with the start and the end of its workers
SLOW_START_S = 5.0  # of the process: it is not started anew for each pass then
ENDED = ("process", PASSED)  # the stages at which there is no process any more

Heard = Callable[[Row], None]


class Gone(Exception):
    """The process that holds the loader cannot be started, or not again; ``failure`` says why."""

    def __init__(self, failure: Failed) -> None:
        super().__init__(str(failure))
        self.failure = failure


@dataclass(frozen=True)
class Objective:
    """What is to be small: seconds of a step, with its share of an epoch's start where each epoch has one."""

    batches: int | None = None  # of an epoch, where workers are not kept over its end

    def of(self, step_s: float, start_s: float) -> float:
        if self.batches is None:
            return step_s
        return (start_s + (self.batches - 1) * step_s) / self.batches


class Bench:
    """Holds a host, opened when it is needed, and the rows of what was tried on it."""

    def __init__(
        self,
        opener: Opener,
        step: Mapping[str, Any],
        objective: Objective,
        heard: Heard = lambda row: None,
        answer_s: float = ANSWER_S,
    ) -> None:
        self.rows: dict[Setting, Row] = {}
        self.starts: dict[Setting, Start] = {}
        self.setup_s = 0.0  # that the latest process took to start
        self.step = step
        self.objective = objective
        self._opener = opener
        self._heard = heard
        self._answer_s = answer_s
        self._host: Host | None = None

    # -- the process

    def host(self) -> Host:
        if self._host is None:
            started = time.monotonic()
            try:
                self._host = self._opener.open()
                _ = self._host.ready
                self.setup_s = time.monotonic() - started
            except Failed as error:
                self.close()
                raise Gone(error) from None
        return self._host

    def renew(self) -> None:
        """Let what follows be of another process, where starting one costs little."""
        if self.setup_s <= SLOW_START_S:
            self.close()

    def close(self) -> None:
        if self._host is not None:
            host, self._host = self._host, None
            host.close()

    def _ask(self, config: Mapping[str, Any], most_s: float = math.inf) -> dict[str, Any]:
        """A block; a process that has ended with it, or hangs, is given up."""
        host = self.host()
        try:
            patience = min(self._answer_s, most_s)
            return host.ask({"cmd": "block", "arm": "tune", "config": dict(config)}, patience)
        except Failed as error:
            if error.stage in ENDED or error.kind == "Timeout":
                self.close()
            raise

    # -- settings

    def try_(self, one: Setting) -> float:
        """A block of a setting: what the search compares, inf where it cannot be run."""
        row = self.rows.setdefault(one, Row(one))
        why = self._hopeless(one)
        if why:
            row.failure = row.failure or why
        else:
            self._block(one, row)
        self._heard(row)
        if row.failure:
            return math.inf
        return self.objective.of(row.blocks[-1], row.firsts[-1])

    def _block(self, one: Setting, row: Row) -> None:
        try:
            answer = self._ask(stretch(one, self.step))
        except Failed as error:
            row.failure, row.stage = str(error), error.stage
            return
        row.blocks.append(float(answer["t"]))
        row.waits.append(float(answer["wait"]))
        row.firsts.append(float(answer["first"]))
        row.memory = answer["memory"]
        row.wall_s = max(row.wall_s, float(answer.get("wall", 0.0)))

    def _hopeless(self, one: Setting) -> str:
        """Why a setting is not even tried: one that takes less took too much, or its like has failed twice."""
        for row in self.rows.values():
            other = row.setting
            less = other.workers <= one.workers and other.ahead <= one.ahead and other.pin <= one.pin
            if row.stage == PASSED and less and other != one:
                return f"left out: {other.short} took too much already"
        alike = [row for row in self.rows.values() if one.workers and row.setting.method == one.method]
        failures = [row for row in alike if row.setting.workers and row.stage and row.setting != one]
        if len(failures) > 1 and len({row.failure for row in failures}) == 1 and not any(row.ran for row in alike):
            return f"left out: like {failures[0].setting.short}, {failures[0].failure}"
        return ""

    def start(self, one: Setting, most_s: float = math.inf) -> Start:
        """What the start and the end of an epoch cost under a setting; once asked, it is known."""
        if one not in self.starts:
            try:
                answer = self._ask(starting(one, self.step), most_s)
                self.starts[one] = Start(one, float(answer["t"]), float(answer["once"]))
            except Failed as error:
                self.starts[one] = Start(one, failure=str(error))
        return self.starts[one]


def stretch(one: Setting, step: Mapping[str, Any], seconds: float = BLOCK_S) -> dict[str, Any]:
    """What a worker is asked to time of a pipeline that runs."""
    return {"block": "stretch", "seconds": seconds, "loader": one.options, "step": dict(step)}


def starting(one: Setting, step: Mapping[str, Any]) -> dict[str, Any]:
    """What a worker is asked to time of an epoch's ends."""
    return {"block": "starts", "loader": one.options, "step": dict(step)}
