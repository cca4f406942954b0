"""The program's loop is fed from one arm and then from another, and each step is timed where it lies.

A segment is a stretch of one arm.  In batches: after each switch some are given but not timed, since the arm that
waited has finished batches in store, and the other's workers fill theirs again.  In epochs: each of the program's
epochs comes whole from one arm, and lasts from `iter()` to the end, workers' start and end included.
The order is A B B A: what drifts slowly hits both alike.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from . import gauges
from .batches import compared, described, versions
from .loaders import length
from .worker import told

if TYPE_CHECKING:
    from .loaders import Iterate, Watched

now = time.perf_counter
BATCHES = 20  # of a segment, where the parent names no number
SHORT_EPOCHS = 3  # without one timed batch: the loop is not one that can be measured by the batch


class Breaks(Exception):
    """An arm that cannot be built, started or iterated."""

    def __init__(self, arm: str, stage: str, error: BaseException) -> None:
        super().__init__(stage)
        self.told = {"arm": arm, "stage": stage, **told(error)}


class Live:
    """The program's own loader, as it is: what it raises is the program's."""

    def __init__(self, name: str, watched: Watched, iterate: Iterate) -> None:
        self.name = name
        self.iterate = iterate

    def begin(self, feed: Feed) -> None:
        if feed.live is None:
            started = now()
            feed.live = self.iterate(feed.loader)
            feed.began = started

    def fetch(self, feed: Feed) -> Any:
        self.begin(feed)
        return next(feed.live)

    def depth(self, feed: Feed) -> int:
        return depth(feed.loader)

    def rest(self) -> None:
        pass


class Other:
    """A loader of ours in place of the program's: same class, same dataset, other options."""

    def __init__(self, name: str, watched: Watched, iterate: Iterate, config: Mapping[str, Any], whole: bool) -> None:
        self.name = name
        self._watched = watched
        self._iterate = iterate
        self._options = dict(config.get("loader") or {})
        self._rebuild = bool(config.get("rebuild"))
        self._hoist = bool(config.get("hoist"))
        self._whole = whole  # its epochs are the program's: they end where it ends
        self._loader: Any = None
        self._iterator: Any = None

    def begin(self, feed: Feed) -> None:
        if self._hoist and self._loader is not None and self._loader.dataset is not feed.loader.dataset:
            feed.feeder.unfit("the loader is built over another dataset object in each epoch")
        if self._iterator is not None and not self._whole:
            return
        started = now()
        if self._loader is None:
            try:
                self._loader = self._watched.build(feed.loader, self._options)
            except Exception as error:
                raise Breaks(self.name, "build", error) from error
        try:
            self._iterator = self._watched.begin(self._loader, self._iterate)
        except Exception as error:
            raise Breaks(self.name, "start", error) from error
        feed.began = started

    def fetch(self, feed: Feed) -> Any:
        if self._iterator is None:
            self.begin(feed)
        try:
            return next(self._iterator)
        except StopIteration:
            if self._whole:
                raise
        except Exception as error:
            raise Breaks(self.name, "batch", error) from error
        self._iterator = None
        feed.feeder.pause(feed)
        self.begin(feed)
        try:
            return next(self._iterator)
        except StopIteration:
            raise Breaks(self.name, "batch", ValueError("the loader has no batch")) from None
        except Exception as error:
            raise Breaks(self.name, "batch", error) from error

    def again(self) -> None:
        """The program begins an epoch, and so does this: its ends then fall together with the program's."""
        self._iterator = None

    def depth(self, feed: Feed) -> int:
        return depth(self._loader) if self._loader is not None else depth(feed.loader, self._options)

    def rest(self) -> None:
        self._iterator = None
        if self._rebuild:
            self._loader = None


class Replay:
    """The ideal loader: the first real batches, again and again."""

    def __init__(self, name: str, wanted: int) -> None:
        self.name = name
        self.mutated = False
        self.unchecked = 0  # values whose change nobody counts, such as numpy arrays
        self._wanted = wanted
        self._kept: list[tuple[Any, tuple[Any, ...]]] = []
        self._at = 0

    def begin(self, feed: Feed) -> None:
        pass

    def see(self, batch: Any) -> None:
        """Keep a batch on its way to the program, as long as there are too few."""
        if len(self._kept) < self._wanted:
            seen, unchecked = versions(batch)
            self.unchecked += unchecked
            self._kept.append((batch, seen))

    def fetch(self, feed: Feed) -> Any:
        batch, seen = self._kept[self._at % len(self._kept)]
        self._at += 1
        if not self.mutated and versions(batch)[0] != seen:
            self.mutated = True  # the program writes into its batches: it would train on what it wrote
            feed.feeder.tell(replay={"mutated": True})
        return batch

    def again(self) -> None:
        pass

    def depth(self, feed: Feed) -> int:
        return 1

    def rest(self) -> None:
        pass


def depth(loader: Any, options: Mapping[str, Any] | None = None) -> int:
    """How many batches a loader has in the making at most."""
    options = options or {}
    workers = options.get("num_workers", loader.num_workers)
    return int(workers * (options.get("prefetch_factor") or getattr(loader, "prefetch_factor", None) or 2))


class Clock:
    """Seconds and batches of one segment, without what lies between the program's epochs; its gauge counts with it."""

    def __init__(self, across: bool, gauge: gauges.Gauge) -> None:
        self._across = across
        self._gauge = gauge
        self.begin(0)

    def begin(self, skip: int) -> None:
        self.skip = self.skipped = skip
        self.timed = 0
        self.elapsed = self.wait = 0.0
        self._since: float | None = None
        self._last = self._last_wait = 0.0

    @property
    def runs(self) -> bool:
        return self._since is not None

    def step(self, at: float, wanted: int) -> bool:
        """A step ends, and the next batch is asked for: whether the segment is over."""
        if self.timed >= wanted:
            self._hold(at)
            return True
        if self._since is None and not self.skip:
            self._since = at
            self._gauge.begin()
        return False

    def given(self, asked: float, at: float) -> None:
        if self._since is None:
            self.skip -= 1
            return
        self.timed += 1
        self.wait += at - asked
        self._last, self._last_wait = asked, at - asked

    def end_epoch(self, at: float, skip: int) -> None:
        if not self._across:
            self._hold(at)
            self.skip = skip

    def break_off(self, skip: int) -> None:
        """The program left its epoch early: how long its last step took is not known."""
        if self._across:
            return
        if self._since is not None and self.timed:
            self.timed -= 1
            self.wait -= self._last_wait
            self._hold(self._last)
        self._since, self.skip = None, skip

    def _hold(self, at: float) -> None:
        if self._since is not None:
            self.elapsed += at - self._since
            self._gauge.hold()
            self._since = None


class Epoch:
    """How far one epoch of the program has come; kept when the program drops its iterator, whose workers then end."""

    def __init__(self) -> None:
        self.given = 0
        self.timed = False
        self.over = False


class Feed:
    """The iterator that the program gets: one of its epochs."""

    def __init__(self, feeder: Feeder, loader: Any, limit: int | None) -> None:
        self.feeder = feeder
        self.loader = loader
        self.limit = limit
        self.live: Any = None
        self.began = 0.0  # an arm was started for this epoch then, and has not given a batch yet
        self.epoch = Epoch()

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> Any:
        return self.feeder.next(self)

    def __len__(self) -> int:
        return len(self.live if self.live is not None else self.loader)

    def __getattr__(self, name: str) -> Any:
        # Frameworks look into torch's iterators: they find one.
        if name.startswith("__") or "live" not in self.__dict__:
            raise AttributeError(name)
        if self.live is None:
            self.live = self.feeder.iterate(self.loader)
        return getattr(self.live, name)


class Feeder:
    """Which arm is on, and what the segments so far have shown."""

    def __init__(self, watched: Watched, iterate: Iterate) -> None:
        self.watched = watched
        self.session = watched.session
        self.iterate = iterate
        self.tell: Callable[..., None] = self.session.tell
        spec = self.session.spec
        self._whole = spec.segment.get("unit") == "epoch"
        self._across = bool(spec.segment.get("across"))
        self._wanted = int(spec.segment.get("batches") or BATCHES)
        self._skip = spec.segment.get("skip")
        self._stop = spec.stop
        self._configs = spec.arms
        self._arms = [self._arm(name, config) for name, config in spec.arms.items()]
        self._replays = [arm for arm in self._arms if isinstance(arm, Replay)]
        order = list(range(len(self._arms)))
        self._order = order + order[::-1]
        self._turn = 0
        self.on = self._arms[0]
        self._gauge = self._wanted_gauge()
        self._clock = Clock(self._across, self._gauge)
        self._started = now()
        self._first: dict[str, dict[str, Any]] = {}  # what the first batch of each arm looks like
        self._last: Epoch | None = None
        self._threads: int | None = None
        self.batches = self.segments = self._short = 0
        self._warm: set[str] = set()
        self._wait = self._first_s = self._began = self._asked = 0.0

    def _wanted_gauge(self) -> gauges.Gauge:
        try:
            return gauges.of(self.session)
        except gauges.Unreadable as why:
            self.unfit(str(why))

    def _arm(self, name: str, config: Mapping[str, Any]) -> Live | Other | Replay:
        if config.get("replay"):
            return Replay(name, int(config["replay"]))
        if any(config.get(key) for key in ("loader", "hoist", "rebuild", "own")) or name != next(iter(self._configs)):
            return Other(name, self.watched, self.iterate, config, self._whole)
        return Live(name, self.watched, self.iterate)

    # -- the program's epochs

    def epoch(self, loader: Any) -> Feed:
        """The program begins an epoch, and may have left the last one where it was."""
        feed = Feed(self, loader, None if self._whole or self._across else length(loader))
        old, self._last = self._last, feed.epoch
        if old is None:
            self._turn_on(self.on, feed)
        elif not old.over:
            self._leave_early(old, feed)
        if not self._whole and not isinstance(self.on, Live):
            if not self._across:
                self.on.again()
            return feed
        if self._whole:
            self._wait = self._first_s = 0.0
            self._began = self._synchronised(now())
        try:
            self.on.begin(feed)
        except Breaks as broken:
            self._broken(broken)
        if self._whole:
            feed.began = self._began
        return feed

    def next(self, feed: Feed) -> Any:
        if feed.epoch.over:
            raise StopIteration
        if not self._whole:
            self._step(feed)
        asked = self._asked = now()
        try:
            # An epoch that is fed from two loaders is no longer than one: schedules and progress bars count on it.
            if feed.limit is not None and feed.epoch.given >= feed.limit:
                raise StopIteration
            batch = self.on.fetch(feed)
        except StopIteration:
            feed.epoch.over = True
            self._end(feed, asked)
            raise
        except Breaks as broken:
            self._broken(broken)
        at = now()
        if feed.began:
            self._first_s = at - feed.began
            feed.began = 0.0
            self._seen_first(batch, self._first_s)
        if not self._whole:
            self._clock.given(asked, at)
            feed.epoch.timed = feed.epoch.timed or self._clock.runs
        self._wait += at - asked
        feed.epoch.given += 1
        self.batches += 1
        if isinstance(self.on, Live):
            for replay in self._replays:
                replay.see(batch)
        self._gauge.given()
        return batch

    def _end(self, feed: Feed, asked: float) -> None:
        """The program's epoch is over."""
        if self._whole:
            self._finish_epoch(feed.epoch, feed, complete=True)
            feed.live = None
            return
        at = self._synchronised(asked)
        self._clock.end_epoch(at, self._skipped(feed))
        feed.live = None
        self._too_short(feed.epoch, feed)
        self._past_limits()

    def pause(self, feed: Feed) -> None:
        """An arm of ours begins its data again: no step either, since the program's own loader is not timed there."""
        self._clock.end_epoch(self._synchronised(self._asked), self._skipped(feed))

    def _leave_early(self, epoch: Epoch, feed: Feed) -> None:
        if self._whole:
            if epoch.given > 1:  # one batch is a look, not an epoch
                self._finish_epoch(epoch, feed, complete=False)
            return
        self._clock.break_off(self._skipped(feed))
        self._too_short(epoch, feed)

    def _too_short(self, epoch: Epoch, feed: Feed) -> None:
        if self._across or epoch.given <= 1:
            return
        self._short = 0 if epoch.timed else self._short + 1
        if self._short >= SHORT_EPOCHS:
            self.unfit(
                f"an epoch has {epoch.given} batches, and the first {self._skipped(feed)} after a pause are not timed"
            )

    # -- segments of batches

    def _step(self, feed: Feed) -> None:
        """A step of the program's has ended: time for the other arm, or to stop?"""
        at = now()
        if (self._clock.runs and self._clock.timed >= self._wanted) or (not self._clock.runs and not self._clock.skip):
            at = self._synchronised(at)
        if self._clock.step(at, self._wanted):
            self._finish_segment(feed)
            self._clock.step(now(), self._wanted)
        self._past_limits()

    def _finish_segment(self, feed: Feed) -> None:
        clock = self._clock
        try:
            shown = self._gauge.told(clock.timed)
        except gauges.Unreadable as why:
            self.unfit(str(why))
        self.segments += 1
        self.tell(
            segment={
                "n": self.segments,
                "arm": self.on.name,
                "unit": "batch",
                "t": clock.elapsed / clock.timed,
                "wait": clock.wait / clock.elapsed if clock.elapsed else 0.0,
                "batches": clock.timed,
                "skipped": clock.skipped,
                **shown,
            }
        )
        self._past_limits()
        clock.begin(0)
        self._switch(feed)

    def _skipped(self, feed: Feed) -> int:
        """Batches that are given untimed: what the arm has in store, and for as long as the other fills its own."""
        if self._skip is not None:
            return int(self._skip)
        mine = max(1, self.on.depth(feed))
        return max(2 * mine, mine + max(max(1, arm.depth(feed)) for arm in self._arms))

    # -- segments of epochs

    def _finish_epoch(self, epoch: Epoch, feed: Feed, complete: bool) -> None:
        took = self._synchronised(now()) - self._began
        name = self.on.name
        cold = name not in self._warm  # an arm's first epoch pays for what is only done once
        self._warm.add(name)
        if complete and not cold:
            self.segments += 1
        self.tell(
            segment={
                "n": self.segments,
                "arm": name,
                "unit": "epoch",
                "t": took,
                "wait": self._wait / took if took else 0.0,
                "first": self._first_s,
                "batches": epoch.given,
                "complete": complete,
                "cold": cold,
            }
        )
        epoch.over = True
        self.on.rest()
        self._past_limits()
        self._switch(feed)

    # -- switching and stopping

    def _switch(self, feed: Feed) -> None:
        self._turn += 1
        following = self._arms[self._order[self._turn % len(self._order)]]
        if following is not self.on:
            self._turn_on(following, feed)

    def _turn_on(self, arm: Live | Other | Replay, feed: Feed) -> None:
        self.on = arm
        config = self._configs[arm.name]
        if self.watched.tensors is not None:
            self.watched.tensors.on = arm.name
        torch = sys.modules["torch"]
        if config.get("threads"):
            self._threads = self._threads or torch.get_num_threads()
            torch.set_num_threads(int(config["threads"]))
        elif self._threads is not None:
            torch.set_num_threads(self._threads)
        self.tell(on={"arm": arm.name, "batches": self.batches})
        if not self._whole:
            self._clock.begin(self._skipped(feed))

    def _past_limits(self) -> None:
        stop = self._stop
        if stop.get("segments") and self.segments >= stop["segments"]:
            self.session.leave("segments")
        if stop.get("batches") and self.batches >= stop["batches"]:
            self.session.leave("batches")
        if stop.get("seconds") and now() - self._started >= stop["seconds"]:
            self.session.leave("seconds")

    def unfit(self, why: str) -> NoReturn:
        self.tell(unfit={"why": why})
        self.session.leave("unfit")

    def _broken(self, broken: Breaks) -> None:
        self.tell(breaks=broken.told)
        self.session.leave("breaks")
        raise AssertionError from broken

    def _seen_first(self, batch: Any, seconds: float) -> None:
        name = self.on.name
        self.tell(first={"arm": name, "s": seconds})
        if name in self._first or isinstance(self.on, Replay):
            return
        self._first[name] = described(batch)
        self.tell(batch={"arm": name, "structure": self._first[name]})
        names = list(self._first)
        if len(names) > 1:
            self.tell(structure={"arms": [names[0], name], **compared(self._first[names[0]], self._first[name])})

    def _synchronised(self, at: float) -> float:
        """Now, when the device has finished what the steps so far have given it."""
        torch = sys.modules["torch"]
        cuda = getattr(torch, "cuda", None)
        if cuda is None or not cuda.is_initialized():
            return at
        cuda.synchronize()
        return now()

    def results(self) -> dict[str, Any]:
        found: dict[str, Any] = {"batches": self.batches, "segments": self.segments}
        if self._replays:
            found["replay"] = {"mutated": self._replays[0].mutated, "unchecked": self._replays[0].unchecked}
        return found
