"""The paths through a function that makes samples, and whose memory its values are on each.

Runs a function forwards, statement by statement, one state for each path; tests are asked of the
evaluator, so that the paths agree with what the dataset was built with.  On the way it notes what
is written in place and which reversed views torch is given; at the end, what each path returns.
Project functions that are called on the way are run in place.  Bounded: what is too much is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from dlcheck.facts import forms
from dlcheck.model.data.expressions import MAX_STATES, MAX_STEPS
from dlcheck.model.data.memory import (
    ARRAY,
    CONTAINERS,
    LIST,
    LOADED,
    NOTHING,
    NUMERIC,
    TENSOR,
    Piece,
    computed,
    item_of,
)
from dlcheck.model.data.path_calls import Calls
from dlcheck.model.data.traces import Cause, Exit, State, used_as_array
from dlcheck.model.scopes import Link, last_name
from dlcheck.model.values import Frame, Point


class _Flow(NamedTuple):
    state: State
    leaves: str = ""  # "", return, raise, break, continue


class Paths(Calls):
    """One run through a function, and what it notes on the way."""

    def run(self, frame: Frame, state: State) -> list[Exit]:
        """The ends of the paths through the frame's function."""
        exits: list[Exit] = []
        self._running.append(frame.scope)
        try:
            flows = self._block(frame.scope.body, frame, [state], exits)
        finally:
            self._running.pop()
        return exits + [Exit(NOTHING, None, flow.state) for flow in flows if not flow.leaves]

    def _block(self, links: Sequence[Link], frame: Frame, states: Iterable[State], exits: list[Exit]) -> list[_Flow]:
        here = [_Flow(state) for state in states]
        for link in links:
            there: list[_Flow] = []
            for flow in here:
                if flow.leaves:
                    there.append(flow)
                else:
                    there += self._statement(link, frame, flow.state, exits)
            here = _bounded(there)
        return here

    def _statement(self, link: Link, frame: Frame, state: State, exits: list[Exit]) -> list[_Flow]:
        self.steps += 1
        if self.steps > MAX_STEPS:
            return [_Flow(state, "raise")]
        stmt, point = link.stmt, Point(frame, link)
        if isinstance(stmt, (forms.Assign, forms.Declare)):
            if stmt.value is None:
                return [_Flow(state)]
            targets = stmt.targets if isinstance(stmt, forms.Assign) else (stmt.target,)
            out = []
            for piece, after in self.eval(stmt.value, point, state):
                for target in targets:
                    after = self._assign(target, piece, point, after)
                out.append(_Flow(after))
            return out
        if isinstance(stmt, forms.AugAssign):
            return [_Flow(after) for after in self._augment(stmt, point, state)]
        if isinstance(stmt, forms.Do):
            return [_Flow(after) for _, after in self.eval(stmt.value, point, state)]
        if isinstance(stmt, forms.Return):
            found = self.eval(stmt.value, point, state) if stmt.value is not None else [(NOTHING, state)]
            exits += [Exit(piece, link, after) for piece, after in found]
            return []
        if isinstance(stmt, forms.Raise):
            return [_Flow(state, "raise")]
        if isinstance(stmt, forms.Jump):
            return [_Flow(state, "" if stmt.kind == "pass" else stmt.kind)]
        if isinstance(stmt, forms.Delete):
            for target in stmt.targets:
                if isinstance(target, forms.Sub):
                    for piece, _ in self.eval(target.value, point, state)[:1]:
                        self._note(piece, "cumulative", target, point, state)
            return [_Flow(state)]
        compound = _COMPOUND.get(type(stmt))
        return compound(self, link, frame, state, exits) if compound is not None else [_Flow(state)]

    def _if(self, link: Link, frame: Frame, state: State, exits: list[Exit]) -> list[_Flow]:
        assert isinstance(link.stmt, forms.If)
        out: list[_Flow] = []
        for truth, after in self._test(link.stmt.test, Point(frame, link), state):
            out += self._block(link.blocks["body" if truth else "orelse"], frame, [after], exits)
        return out

    def _loop(self, link: Link, frame: Frame, state: State, exits: list[Exit]) -> list[_Flow]:
        """No round, or one."""
        stmt = link.stmt
        out: list[_Flow] = []
        endless = isinstance(stmt, forms.While) and isinstance(stmt.test, forms.Const) and bool(stmt.test.value)
        if isinstance(stmt, forms.For):
            entering = [state.because(Cause("finished", link))]
            bound: list[State] = []
            for one in entering:
                for source, after in self.eval(stmt.iter, Point(frame, link), one):
                    bound.append(self._assign(stmt.target, item_of(source), Point(frame, link), after))
            entering, skipping = bound, [state.because(Cause("skipped", link))]
        else:
            assert isinstance(stmt, forms.While)
            tests = [(True, state)] if endless else self._test(stmt.test, Point(frame, link), state)
            entering = [after for truth, after in tests if truth]
            skipping = [after for truth, after in tests if not truth]
        out += self._block(link.blocks["orelse"], frame, skipping, exits)
        for flow in self._block(link.blocks["body"], frame, entering, exits):
            if flow.leaves == "break":
                out.append(_Flow(flow.state))
            elif flow.leaves == "raise":
                out.append(flow)
            elif not endless:
                ends = [flow.state]
                if isinstance(stmt, forms.While):
                    point = Point(frame, link)
                    ends = [after for truth, after in self._test(stmt.test, point, flow.state) if not truth]
                out += self._block(link.blocks["orelse"], frame, ends, exits)
        return out

    def _with(self, link: Link, frame: Frame, state: State, exits: list[Exit]) -> list[_Flow]:
        assert isinstance(link.stmt, forms.With)
        point, states, suppressed = Point(frame, link), [state], False
        for item in link.stmt.items:
            entered: list[State] = []
            for before in states:
                for piece, after in self.eval(item.value, point, before)[:2]:
                    entered.append(after if item.target is None else self._assign(item.target, piece, point, after))
            states = entered
            call = item.value
            suppressed = suppressed or isinstance(call, forms.Call) and last_name(call.func) == "suppress"
        out = self._block(link.blocks["body"], frame, states, exits)
        if suppressed:
            out = [flow for flow in out if flow.leaves != "raise"]
            out.append(_Flow(state.because(Cause("failed", link, True))))
        return out

    def _try(self, link: Link, frame: Frame, state: State, exits: list[Exit]) -> list[_Flow]:
        assert isinstance(link.stmt, forms.Try)
        out: list[_Flow] = []
        for flow in self._block(link.blocks["body"], frame, [state], exits):
            if not flow.leaves:
                out += self._block(link.blocks["orelse"], frame, [flow.state], exits)
            elif flow.leaves != "raise" or not link.stmt.handlers:
                out.append(flow)
        for number, handler in enumerate(link.stmt.handlers):
            failing = state.because(Cause("failed", link, not _about_imports(handler)))
            world = state.world.assume(("try", link.stmt.at, frame), number)
            if world is not None:
                handling = failing._replace(world=world)
                out += self._block(link.blocks[f"handler {number}"], frame, [handling], exits)
        final = link.blocks["final"]
        if not final:
            return out
        done: list[_Flow] = []
        for flow in out:
            done += [
                _Flow(end.state, end.leaves or flow.leaves) for end in self._block(final, frame, [flow.state], exits)
            ]
        return done

    def _match(self, link: Link, frame: Frame, state: State, exits: list[Exit]) -> list[_Flow]:
        assert isinstance(link.stmt, forms.Match)
        out = [_Flow(state.because(Cause("tested", link)))]
        for number in range(len(link.stmt.cases)):
            taken = state.because(Cause("tested", link))
            out += self._block(link.blocks[f"case {number}"], frame, [taken], exits)
        return out

    def _augment(self, stmt: forms.AugAssign, point: Point, state: State) -> Iterator[State]:
        for value, after in self.eval(stmt.value, point, state):
            target = stmt.target
            if isinstance(target, forms.Sub):
                for base, later in self.eval(target.value, point, after)[:1]:
                    index = self.eval(target.index, point, later)[0][0]
                    settled = stmt.op in "|&" and not (index.drawn or value.drawn)
                    if base.kind in NUMERIC or base.kind in CONTAINERS:
                        self._note(base, "settled" if settled else "cumulative", stmt, point, later)
                yield after
                continue
            for old, later in self.eval(target, point, after)[:1]:
                if old.stored is not None and self._changes_in_place(old, target, point, stmt.op):
                    self._note(old, "cumulative", stmt, point, later)
                    yield later
                elif old.kind == TENSOR or old.kind == ARRAY and old.solid:
                    yield self._rebind(target, old._replace(drawn=old.drawn or value.drawn), point, later)
                else:
                    yield self._rebind(target, computed([old, value]), point, later)

    def _changes_in_place(self, old: Piece, target: forms.Expr, point: Point, op: str) -> bool:
        """Whether ``x op= y`` writes into ``x``; of a scalar, it gives the name another value."""
        if old.kind == TENSOR:
            return True
        if old.kind == LIST:
            return op in "+*" and not old.whole
        if old.kind in (ARRAY, LOADED) and not old.whole:
            return old.solid or isinstance(target, forms.Name) and used_as_array(point.frame.scope, target.id)
        return False


_COMPOUND: dict[type, Callable[..., list[_Flow]]] = {
    forms.If: Paths._if, forms.For: Paths._loop, forms.While: Paths._loop, forms.With: Paths._with,
    forms.Try: Paths._try, forms.Match: Paths._match,
}  # fmt: skip


def _bounded(flows: list[_Flow]) -> list[_Flow]:
    """The flows without repetitions, and no more of them than can be followed."""
    seen: list[_Flow] = []
    for flow in flows:
        if not any(flow.leaves == other.leaves and flow.state == other.state for other in seen):
            seen.append(flow)
            if len(seen) >= MAX_STATES:
                break
    return seen


def _about_imports(handler: forms.Handler) -> bool:
    return last_name(handler.type) in ("ImportError", "ModuleNotFoundError", "StopIteration", "KeyboardInterrupt")
