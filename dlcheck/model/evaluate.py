"""What is this expression?  Answered on demand, backwards through the program.

``Evaluator.eval`` gives the alternatives for an expression: values, each with the world in which
it is that.  A name leads to what was assigned before it, a parameter to the callers' arguments,
an attribute to the assignments in its class, a call to what the function returns.  Whatever is
not understood is Unknown; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import attributes, calling, conditions, iteration
from dlcheck.model.expressions import EVALUATE
from dlcheck.model.scopes import Link, Module, Scope, dotted, target_names
from dlcheck.model.values import (
    MAX_ALTS,
    UNDEFINED,
    UNKNOWN,
    Alt,
    Arguments,
    ClassRef,
    Const,
    External,
    Frame,
    Func,
    Instance,
    Many,
    Mapping,
    Point,
    Thunk,
    Undefined,
    Unknown,
    Value,
    normal,
)
from dlcheck.model.worlds import ANY, World

if TYPE_CHECKING:
    from dlcheck.facts.forms import Expr
    from dlcheck.model.project import Project

MAX_DEPTH = 70
MAX_FRAME_DEPTH = 6
MAX_STEPS = 1_500
MAX_TOTAL_STEPS = 3_000_000  # of all questions of a run: some minutes, a gigabyte or two


class Evaluator:
    """Evaluates expressions of one project, and remembers what it found."""

    def __init__(self, project: Project, tick: Callable[[], None] | None = None) -> None:
        self.project = project
        self._tick = tick
        self._frames: dict[Hashable, Frame] = {}
        self._any_frames: dict[Scope, Frame] = {}
        self._constants: dict[tuple[type, object], list[Alt]] = {}
        self._memo: dict[Hashable, list[Alt]] = {}
        self._open: set[Hashable] = set()  # questions being answered
        self._guards: dict[Hashable, list[World]] = {}
        self._depth = 0
        self._steps = 0
        self.total_steps = 0

    # -- bookkeeping

    def fresh(self) -> None:
        """Begin a new question: each has its own budget of steps."""
        self._steps = 0

    def frame(
        self,
        scope: Scope,
        args: Arguments | None = None,
        site: Point | None = None,
        self_: Value | None = None,
        closure: Frame | None = None,
    ) -> Frame:
        """The frame of ``scope`` for this call; equal frames are one object.

        Calls too far from the first one, and calls of a function by itself, have one frame whoever calls: chains of
        calls double with each that recurses.
        """
        call = args.call.at if args and args.call else None
        key = (scope, site.frame if site else None, site.link if site else None, call, self_, closure)
        found = self._frames.get(key)
        if found is None:
            if site is not None and (site.frame.depth >= MAX_FRAME_DEPTH or _is_within(scope, site.frame)):
                found = self.frame(scope, self_=self_)
            else:
                found = Frame(scope, args, site, self_, closure, site.frame.depth + 1 if site else 0)
            self._frames[key] = found
        return found

    def any_frame(self, scope: Scope) -> Frame:
        """The frame of a scope; of a function, that anybody may call, and a method's ``self`` is any object."""
        found = self._any_frames.get(scope)
        if found is None:
            owner = scope.owner if scope.kind == "function" else None
            self_ = Instance(owner) if owner is not None and not scope.has_decorator("staticmethod") else None
            found = self._any_frames[scope] = self.frame(scope, self_=self_)
        return found

    def remember(self, key: Hashable, compute: Callable[[], list[Alt]]) -> list[Alt]:
        """``compute()`` once; a question asked while it is being answered is Unknown."""
        known = self._memo.get(key)
        if known is not None:
            return known
        self._steps += 1
        self.total_steps += 1
        if self._tick is not None and not self.total_steps & 63:
            self._tick()
        spent = self._steps > MAX_STEPS or self.total_steps > MAX_TOTAL_STEPS
        if spent or key in self._open or self._depth > MAX_DEPTH:
            return [Alt(Unknown(("cycle", key)), ANY)]
        self._depth += 1
        self._open.add(key)
        try:
            result = normal(compute())
        except RecursionError:
            if self._depth > 1:
                raise
            return [Alt(UNKNOWN, ANY)]
        finally:
            self._depth -= 1
            self._open.discard(key)
        if self._steps <= MAX_STEPS and self.total_steps <= MAX_TOTAL_STEPS:
            # else it was cut short: no answer for others to rely on
            self._memo[key] = result
        return result

    # -- expressions

    def eval(self, expr: Expr, point: Point) -> list[Alt]:
        """The alternatives for ``expr`` at ``point``; never empty."""
        if isinstance(expr, forms.Const):
            same = (expr.value.__class__, expr.value)
            return self._constants.get(same) or self._constants.setdefault(same, [Alt(Const(expr.value), ANY)])
        key = (point.frame, expr.at)
        return self.remember(key, lambda: EVALUATE.get(type(expr), Evaluator.unknown_at)(self, expr, point))

    def force(self, thunk: Thunk) -> list[Alt]:
        """The alternatives of a thunk."""
        if thunk.expr is None or thunk.point is None:
            return list(thunk.alts) or [Alt(UNKNOWN, ANY)]
        return self.eval(thunk.expr, thunk.point)

    def values(self, expr: Expr, point: Point) -> Iterable[Value]:
        return (alt.value for alt in self.eval(expr, point))

    def bind(self, alts: Iterable[Alt], step: Callable[[Value], list[Alt]]) -> list[Alt]:
        """Apply ``step`` to each value and keep what is consistent with its world."""
        alts = alts if isinstance(alts, list) else list(alts)
        if len(alts) == 1 and not alts[0].world.choices:  # most are
            return step(alts[0].value) or [Alt(UNKNOWN, ANY)]
        out: list[Alt] = []
        for value, world in alts:
            for result, other in step(value):
                both = world.merge(other)
                if both is not None:
                    out.append(Alt(result, both))
            if len(out) > 2 * MAX_ALTS:
                break
        return out or [Alt(UNKNOWN, ANY)]

    def combine(self, alts: Iterable[Alt], thunk: Thunk, step: Callable[[Value, Value], list[Alt]]) -> list[Alt]:
        """Apply ``step`` to each value together with each value of ``thunk``."""
        return self.bind(alts, lambda value: self.bind(self.force(thunk), partial(step, value)))

    def where_unset(self, alts: Iterable[Alt], rest: list[Alt]) -> list[Alt]:
        """``alts``, with ``rest`` in place of Undefined."""
        out: list[Alt] = []
        for alt in alts:
            if isinstance(alt.value, Undefined):
                out += [Alt(value, both) for value, world in rest if (both := alt.world.merge(world)) is not None]
            else:
                out.append(alt)
            if len(out) > 2 * MAX_ALTS:
                break
        return out or [Alt(UNKNOWN, ANY)]

    def unknown_at(self, expr: Expr, point: Point) -> list[Alt]:
        """Unknown, but the same unknown each time this expression is asked for in this frame."""
        return [Alt(Unknown((point.module.name, expr.at, point.frame)), ANY)]

    # -- names

    def name(self, name: str, point: Point) -> list[Alt]:
        """What a plain name is at ``point``."""
        found = self._inner_name(name, point)
        if found is not None:
            return found
        frame, link = point.frame, point.link
        scope = frame.scope
        if scope.kind == "module" or name in scope.names:
            alts = self.before(link.block, link.index, name, frame)
            return self.bind(alts, lambda value: self.outside(name, frame, value))
        return self._enclosing(name, frame)

    def _inner_name(self, name: str, point: Point) -> list[Alt] | None:
        inner = point.inner
        while inner is not None:
            form = inner.form
            if isinstance(form, forms.Lambda):
                if any(param.name == name for param in form.params):
                    return self._mapped(form, name, Point(point.frame, point.link, inner.parent))
            else:
                for clause in reversed(form.clauses):
                    if name in target_names(clause.target):
                        where = Point(point.frame, point.link, inner if clause is not form.clauses[0] else inner.parent)
                        items = iteration.elements(
                            self, self.eval(clause.iter, where), ("in", point.module.name, clause.at)
                        )
                        return self.unpack(clause.target, name, items)
            inner = inner.parent
        return None

    def _mapped(self, form: forms.Lambda, name: str, point: Point) -> list[Alt]:
        """The parameter of ``map(lambda name: ..., values)``: an element of them; of other lambdas it is unknown."""
        unknown = Alt(Unknown(("lambda", point.module.name, form.at, name)), ANY)
        for site in point.module.calls_in(point.link):
            call = site.expr
            if not isinstance(call, forms.Call) or dotted(call.func) not in ("map", "filter") or len(call.args) != 2:
                continue
            if call.args[0].value is form and len(form.params) == 1:
                values = self.eval(call.args[1].value, point)
                return iteration.elements(self, values, ("in", point.module.name, form.at))
        return [unknown]

    def outside(self, name: str, frame: Frame, value: Value) -> list[Alt]:
        """A name that no statement before it sets: a parameter, or of a scope further out."""
        if not isinstance(value, Undefined):
            return [Alt(value, ANY)]
        scope = frame.scope
        if name in scope.not_local:
            return self._enclosing(name, frame)
        if scope.kind == "function":
            if any(param.name == name for param in scope.function.params):
                return calling.parameter(self, name, frame)
            return [Alt(Unknown(("unset", frame, name)), ANY)]
        if scope.kind == "class":
            return self._enclosing(name, frame)
        return self._global(name, scope)

    def _enclosing(self, name: str, frame: Frame) -> list[Alt]:
        """A name of an enclosing function or of the module, as it is at the end of that scope."""
        closure = frame.closure
        scope = frame.scope.parent
        while scope is not None and scope.kind != "module":
            if scope.kind == "function" and name in scope.names and name not in scope.not_local:
                outer = closure if closure is not None and closure.scope is scope else self.any_frame(scope)
                key = ("end", outer, name)
                return self.remember(key, partial(self._at_end, name, outer, scope))
            scope = scope.parent
        module = frame.scope.module
        return self.module_name(module.scope, name)

    def _at_end(self, name: str, frame: Frame, scope: Scope) -> list[Alt]:
        alts = self.before(scope.body, len(scope.body), name, frame)
        return self.bind(alts, lambda value: self.outside(name, frame, value))

    def module_name(self, scope: Scope, name: str) -> list[Alt]:
        """What a module's name is once the module has run."""
        frame = self.frame(scope)
        return self.remember(("end", frame, name), lambda: self._at_end(name, frame, scope))

    def _global(self, name: str, scope: Scope) -> list[Alt]:
        """A name that its module does not set: from a star import, or a builtin."""
        found = self.project.imports.star_import(scope.module, name) or self._set_by_functions(name, scope.module)
        if found is not None:
            return found
        if name == "__name__":
            return [Alt(Unknown(("__name__", scope.module.name)), ANY)]
        return [Alt(External(f"builtins.{name}"), ANY)]

    def _set_by_functions(self, name: str, module: Module) -> list[Alt] | None:
        """What functions that declare ``global name`` leave in it."""
        out: list[Alt] = []
        for function in module.functions:
            if name in function.not_local and name in function.names:
                frame = self.any_frame(function)
                key = ("global", function, name)
                compute = partial(self.before, function.body, len(function.body), name, frame)
                for value, world in self.remember(key, compute):
                    both = world.assume(("set by", module.name, name), function.qualified)
                    if both is not None and not isinstance(value, Undefined):
                        out.append(Alt(value, both))
        return out or None

    # -- what statements before a point have set

    def before(self, links: Sequence[Link], index: int, name: str, frame: Frame) -> list[Alt]:
        """The value of ``name`` just before statement ``index`` of a block; Undefined where none sets it."""
        base = name.partition(".")[0] if "." in name else None
        for at in range(index - 1, -1, -1):
            link = links[at]
            if base is not None and base in link.changes and self.rebinds(link, base):
                return [Alt(UNDEFINED, ANY)]
            if name not in link.changes:
                continue
            key = ("after", frame, link.stmt.at, name)
            alts = self.remember(key, partial(self.after, link, name, frame))
            if not any(isinstance(alt.value, Undefined) for alt in alts):
                return alts
            return self.where_unset(alts, self.before(links, at, name, frame))
        parent = links[0].parent if links else None
        if parent is None:
            return [Alt(UNDEFINED, ANY)]
        return self._before_block(links, parent, name, frame)

    def rebinds(self, link: Link, base: str) -> bool:
        """Whether a statement gives ``base`` itself another value (not only one of its attributes)."""
        stmt = link.stmt
        if isinstance(stmt, forms.Assign):
            return any(base in target_names(target) and dotted(target) == base for target in stmt.targets)
        return isinstance(stmt, (forms.For, forms.With)) and base in link.changes and not isinstance(stmt, forms.If)

    def _before_block(self, links: Sequence[Link], parent: Link, name: str, frame: Frame) -> list[Alt]:
        stmt, slot = parent.stmt, links[0].slot

        def above() -> list[Alt]:
            tested = self._bound_in(stmt.test, name, Point(frame, parent)) if isinstance(stmt, forms.If) else []
            alts = tested or [Alt(UNDEFINED, ANY)]
            if any(isinstance(alt.value, Undefined) for alt in alts):
                return self.where_unset(alts, self.before(parent.block, parent.index, name, frame))
            return alts

        if isinstance(stmt, forms.For) and slot == "body":
            if name in target_names(stmt.target):
                return self.loop_target(stmt, parent, name, frame)
            return self._either_round(links, parent, name, frame, above)
        if isinstance(stmt, forms.While) and slot == "body":
            return self._either_round(links, parent, name, frame, above)
        if isinstance(stmt, forms.With):
            for item in reversed(stmt.items):
                if item.target is not None and name in target_names(item.target):
                    return self.eval(item.value, Point(frame, parent))
        if isinstance(stmt, forms.Try) and slot in ("orelse", "final"):
            alts = self._block_end(parent.blocks["body"], name, frame)
            return self.bind(alts, lambda value: above() if isinstance(value, Undefined) else [Alt(value, ANY)])
        if isinstance(stmt, forms.Match):
            case = stmt.cases[int(slot.removeprefix("case "))]
            if name in case.names:
                return self.unknown_at(stmt.subject, Point(frame, parent))
        return above()

    def _either_round(
        self, links: Sequence[Link], parent: Link, name: str, frame: Frame, above: Callable[[], list[Alt]]
    ) -> list[Alt]:
        """In a loop's body: the value from before the loop, or from the round before."""
        first = above()
        if not any(name in link.changes for link in links):
            return first
        key = ("round", parent.stmt.at, frame)
        later = self.remember((key, name), lambda: self._block_end(links, name, frame))
        out = _assuming(first, key, "first")
        out += [alt for alt in _assuming(later, key, "later") if not isinstance(alt.value, (Undefined, Unknown))]
        return out

    def _block_end(self, links: Sequence[Link], name: str, frame: Frame) -> list[Alt]:
        """The value of ``name`` at the end of a block, looking no further out than the block."""
        for at in range(len(links) - 1, -1, -1):
            link = links[at]
            if name not in link.changes:
                continue
            key = ("after", frame, link.stmt.at, name)
            alts = self.remember(key, partial(self.after, link, name, frame))
            if not any(isinstance(alt.value, Undefined) for alt in alts):
                return alts
            return self.where_unset(alts, self._block_end(links[:at], name, frame))
        return [Alt(UNDEFINED, ANY)]

    def after(self, link: Link, name: str, frame: Frame) -> list[Alt]:
        """The value that a statement leaves in ``name``; Undefined where it does not touch it."""
        stmt = link.stmt
        point = Point(frame, link)
        if isinstance(stmt, forms.If):
            alts = self._after_if(stmt, link, name, point)
            return self.where_unset(alts, self._bound_in(stmt.test, name, point))
        if isinstance(stmt, (forms.For, forms.While)):
            return self._after_loop(stmt, link, name, frame)
        if isinstance(stmt, forms.Try):
            return self._after_try(stmt, link, name, frame)
        if isinstance(stmt, forms.With):
            if any(name in inner.changes for inner in link.blocks["body"]):
                alts = self._block_end(link.blocks["body"], name, frame)
                if not any(isinstance(alt.value, Undefined) for alt in alts):
                    return alts
            for item in stmt.items:
                if item.target is not None and name in target_names(item.target):
                    return self.eval(item.value, point)
            return self._block_end(link.blocks["body"], name, frame)
        if isinstance(stmt, forms.Match):
            return self._after_match(stmt, link, name, frame)
        if isinstance(stmt, (forms.Assign, forms.Declare)):
            return self._after_assign(stmt, name, point)
        if isinstance(stmt, forms.AugAssign) and dotted(stmt.target) == name:
            return self.bind(
                self.before(link.block, link.index, name, frame),
                lambda value: calling.augmented(self, stmt, value, point),
            )
        if isinstance(stmt, forms.AugAssign) and isinstance(stmt.target, forms.Sub):
            return self.bind(
                self.value_before(stmt.target.value, name, point), lambda value: [Alt(_with_other_item(value), ANY)]
            )
        if isinstance(stmt, forms.Do) and isinstance(stmt.value, forms.Call):
            return self._bound_in(stmt.value, name, point)
        if isinstance(stmt, forms.Delete):
            return self._after_delete(stmt, name, point)
        if isinstance(stmt, (forms.Import, forms.ImportFrom)):
            return self.project.imports.imported(stmt, name, frame.scope.module)
        if isinstance(stmt, forms.Function):
            return [Alt(Func(link.scope.functions[stmt.name], None, frame), ANY)]
        if isinstance(stmt, forms.Class):
            return [Alt(ClassRef(link.scope.classes[stmt.name]), ANY)]
        return self.unknown_at(forms.Other((), stmt.at), point)

    def _after_if(self, stmt: forms.If, link: Link, name: str, point: Point) -> list[Alt]:
        out: list[Alt] = []
        for truth, world in conditions.truth(self, stmt.test, point):
            branch = link.blocks["body" if truth else "orelse"]
            if any(inner.leaves for inner in branch):
                continue
            for value, other in self._block_end(branch, name, point.frame):
                both = world.merge(other)
                if both is not None:
                    out.append(Alt(value, both))
        return out or [Alt(UNDEFINED, ANY)]

    def _bound_in(self, expr: Expr, name: str, point: Point) -> list[Alt]:
        """What ``name := value`` or ``name.pop(...)`` in an expression leaves in the name; Undefined without them."""
        if name in point.module.walruses:
            for walrus in _walruses(expr, name):
                return self.eval(walrus.value, point)
        return calling.mutated(self, name, point)

    def _after_loop(self, stmt: forms.For | forms.While, link: Link, name: str, frame: Frame) -> list[Alt]:
        body = self._block_end(link.blocks["body"], name, frame)
        if isinstance(stmt, forms.For) and name in target_names(stmt.target):
            body = [alt for alt in body if not isinstance(alt.value, Undefined)]
            return body or self.loop_target(stmt, link, name, frame)
        if isinstance(stmt, forms.While) and conditions.always(self, stmt.test, Point(frame, link)):
            return body
        key = ("ran", stmt.at, frame)
        return [*_assuming(body, key, True), *_assuming([Alt(UNDEFINED, ANY)], key, False)]

    def _after_try(self, stmt: forms.Try, link: Link, name: str, frame: Frame) -> list[Alt]:
        key = ("try", stmt.at, frame)
        final = self._block_end(link.blocks["final"], name, frame)
        if not any(isinstance(alt.value, Undefined) for alt in final):
            return final
        main = self._block_end(link.blocks["orelse"], name, frame)
        body = self._block_end(link.blocks["body"], name, frame)
        out = _assuming(self.where_unset(main, body), key, "body")
        if any(inner.leaves for inner in link.blocks["body"]):
            out = []
        for number, handler in enumerate(stmt.handlers):
            links = link.blocks[f"handler {number}"]
            if any(inner.leaves for inner in links):
                continue
            if handler.name == name:
                out += _assuming(self.unknown_at(forms.Other((), handler.at), Point(frame, link)), key, number)
            else:
                out += _assuming(self._block_end(links, name, frame), key, number)
        return out or [Alt(UNDEFINED, ANY)]

    def _after_match(self, stmt: forms.Match, link: Link, name: str, frame: Frame) -> list[Alt]:
        key = ("match", stmt.at, frame)
        out = _assuming([Alt(UNDEFINED, ANY)], key, None)
        for number in range(len(stmt.cases)):
            links = link.blocks[f"case {number}"]
            if not any(inner.leaves for inner in links):
                out += _assuming(self._block_end(links, name, frame), key, number)
        return out

    def _after_assign(self, stmt: forms.Assign | forms.Declare, name: str, point: Point) -> list[Alt]:
        targets = stmt.targets if isinstance(stmt, forms.Assign) else (stmt.target,)
        if stmt.value is None:
            return [Alt(UNDEFINED, ANY)]
        for target in targets:
            if dotted(target) == name:
                return self.eval(stmt.value, point)
            if isinstance(target, forms.Sub) and dotted(target.value) == name:
                return self._set_item(target, stmt.value, name, point)
            if isinstance(target, forms.Sequence) and name in target_names(target):
                return self.unpack(target, name, self.eval(stmt.value, point))
        return self._bound_in(stmt.value, name, point)

    def _set_item(self, target: forms.Sub, value: Expr, name: str, point: Point) -> list[Alt]:
        """``name[key] = value``: a dict with one entry more."""
        changed = calling.mutated(self, name, point)  # by the value, which comes first
        earlier = self.where_unset(changed, self.value_before(target.value, name, point))

        def step(old: Value) -> list[Alt]:
            if not isinstance(old, Mapping):
                return [Alt(old, ANY)]
            keys = self.eval(target.index, point)

            def put(key: Value) -> list[Alt]:
                if isinstance(key, Const):
                    entries = tuple(entry for entry in old.entries if entry[0] != key.value)
                    return [Alt(Mapping((*entries, (key.value, Thunk(value, point))), old.open), ANY)]
                return [Alt(Mapping(old.entries, True), ANY)]

            return self.bind(keys, put)

        return self.bind(earlier, step)

    def _after_delete(self, stmt: forms.Delete, name: str, point: Point) -> list[Alt]:
        """``del name[key]``: a dict without that entry."""
        targets = [target for target in stmt.targets if name in target_names(target)]
        target = targets[0] if len(targets) == 1 else None
        if not isinstance(target, forms.Sub) or dotted(target.value) != name:
            return self.unknown_at(forms.Other((), stmt.at), point)
        container, index = target.value, target.index
        return self.bind(
            self.value_before(container, name, point),
            lambda old: self.bind(self.eval(index, point), lambda key: [Alt(_without_item(old, key), ANY)]),
        )

    def _read_again(self, expr: Expr, name: str, value: Value, point: Point) -> list[Alt]:
        """``value``, or where nothing in the scope has set ``name``, what it is from outside."""
        if not isinstance(value, Undefined):
            return [Alt(value, ANY)]
        if isinstance(expr, forms.Attr):
            return attributes.attribute_value(self, expr, point)
        return self.outside(name, point.frame, value)

    def value_before(self, expr: Expr, name: str, point: Point) -> list[Alt]:
        """What ``expr``, the chain ``name``, is just before the statement of ``point``."""
        alts = self.before(point.link.block, point.link.index, name, point.frame)
        return self.bind(alts, lambda value: self._read_again(expr, name, value, point))

    # -- unpacking

    def loop_target(self, stmt: forms.For, link: Link, name: str, frame: Frame) -> list[Alt]:
        """What a loop's target (or a name in it) is in a round."""
        key = ("target", frame, stmt.at, name)

        def compute() -> list[Alt]:
            source = self.eval(stmt.iter, Point(frame, link))
            return self.unpack(
                stmt.target, name, iteration.elements(self, source, ("in", frame.scope.module.name, stmt.at))
            )

        return self.remember(key, compute)

    def unpack(self, target: Expr, name: str, alts: list[Alt]) -> list[Alt]:
        """The part of a value that ``name`` gets when the value is assigned to ``target``."""
        if dotted(target) == name:
            return alts
        if isinstance(target, forms.Star):
            return self.unpack(target.value, name, alts)
        if not isinstance(target, forms.Sequence):
            return [Alt(UNKNOWN, ANY)]
        at = next((at for at, item in enumerate(target.items) if name in target_names(item)), None)
        if at is None:
            return [Alt(UNKNOWN, ANY)]
        item = target.items[at]
        if isinstance(item, forms.Star):
            return self.unpack(item, name, self.bind(alts, lambda value: iteration.rest(self, value)))
        star = next((at for at, item in enumerate(target.items) if isinstance(item, forms.Star)), None)
        number = at if star is None or at < star else at - len(target.items)
        return self.unpack(item, name, self.bind(alts, lambda value: iteration.item(self, value, number)))

    # -- guards

    def guards(self, link: Link, frame: Frame) -> list[World]:
        """The worlds in which control reaches a statement, within its function."""
        key = (link, frame)
        if key in self._guards:
            return self._guards[key]
        self._guards[key] = [ANY]  # asked for on the way, it counts as reached
        self._guards[key] = self._find_guards(link, frame)
        return self._guards[key]

    def _find_guards(self, link: Link, frame: Frame) -> list[World]:
        worlds = [ANY]
        here: Link | None = link
        while here is not None:
            for earlier in here.block[: here.index]:
                if isinstance(earlier.stmt, forms.If):
                    worlds = self._passing(earlier, frame, worlds)
            parent = here.parent
            if parent is not None:
                worlds = self._entering(parent, here.slot, frame, worlds)
            here = parent
        return worlds

    def _passing(self, link: Link, frame: Frame, worlds: list[World]) -> list[World]:
        """After ``if test: return``, the test was false."""
        leaves = [slot for slot, links in link.blocks.items() if any(inner.leaves for inner in links)]
        if len(leaves) != 1:
            return worlds
        wanted = leaves == ["orelse"]
        return self._where(link, wanted, frame, worlds)

    def _entering(self, parent: Link, slot: str, frame: Frame, worlds: list[World]) -> list[World]:
        stmt = parent.stmt
        if isinstance(stmt, forms.If):
            return self._where(parent, slot == "body", frame, worlds)
        if isinstance(stmt, forms.Try) and slot.startswith("handler"):
            key, choice = ("try", stmt.at, frame), int(slot.removeprefix("handler "))
        elif isinstance(stmt, forms.Match):
            key, choice = ("match", stmt.at, frame), int(slot.removeprefix("case "))
        else:
            return worlds
        return [both for world in worlds if (both := world.assume(key, choice)) is not None]

    def _where(self, link: Link, wanted: bool, frame: Frame, worlds: list[World]) -> list[World]:
        assert isinstance(link.stmt, (forms.If,))
        truths = conditions.truth(self, link.stmt.test, Point(frame, link))
        out: list[World] = []
        for world in worlds:
            for truth, other in truths:
                both = world.merge(other) if truth == wanted else None
                if both is not None and both not in out:
                    out.append(both)
        return out[:8]


def _is_within(scope: Scope, frame: Frame) -> bool:
    """Whether a frame, or one of those that led to it, is of a scope."""
    here: Frame | None = frame
    while here is not None:
        if here.scope is scope:
            return True
        here = here.site.frame if here.site is not None else None
    return False


def _assuming(alts: Iterable[Alt], key: Hashable, choice: Hashable) -> list[Alt]:
    out = []
    for value, world in alts:
        both = world.assume(key, choice)
        if both is not None:
            out.append(Alt(value, both))
    return out


def _without_item(value: Value, key: Value) -> Value:
    """A container after ``del name[key]``."""
    if isinstance(value, Mapping) and isinstance(key, Const):
        return Mapping(tuple(entry for entry in value.entries if entry[0] != key.value), value.open)
    return _with_other_item(value)


def _with_other_item(value: Value) -> Value:
    """A container after ``name[key] += ...``: nothing is known of its items any more."""
    if isinstance(value, Mapping):
        return Mapping((), True)
    return Many(value.kind, (), True) if isinstance(value, Many) else value


def _walruses(expr: Expr, name: str) -> Iterable[forms.Walrus]:
    from dlcheck.model.scopes import descend

    return (node for node in descend(expr) if isinstance(node, forms.Walrus) and dotted(node.target) == name)
