"""Calls on a path: project functions are run in place, of libraries it is known what they do to memory."""

from __future__ import annotations

from collections.abc import Mapping

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.data import memory
from dlcheck.model.data.expressions import MAX_STATES, Expressions
from dlcheck.model.data.memory import (
    ARRAY,
    DICT,
    LIST,
    LOADED,
    NONE,
    NUMBER,
    NUMERIC,
    PLAIN,
    SCALAR,
    TENSOR,
    UNKNOWN_PIECE,
    Piece,
    computed,
    item_of,
)
from dlcheck.model.data.traces import Evaluated, Refusal, State
from dlcheck.model.values import (
    Alt,
    Bound,
    Const,
    External,
    Frame,
    Func,
    Instance,
    LambdaFunc,
    Made,
    Many,
    Point,
    Value,
)

MAX_DEPTH = 5

# What gives the same when it is applied to its own result.
_CONVERSIONS = frozenset(
    {"builtins.int", "builtins.float", "builtins.str", "builtins.bool", "builtins.list", "builtins.tuple",
     "builtins.set", "builtins.sorted", "builtins.abs", "builtins.round", "numpy.array", "numpy.asarray",
     "numpy.float32", "numpy.int64", "torch.tensor", "torch.as_tensor", "torch.FloatTensor", "torch.LongTensor",
     "numpy.abs", "numpy.clip", "torch.clamp", "builtins.len"}
)  # fmt: skip


class Calls(Expressions):
    """Expressions, calls included."""

    def _call(self, expr: forms.Call, point: Point, state: State) -> Evaluated:
        out: Evaluated = []
        for pieces, after in self._all([arg.value for arg in expr.args], point, state):
            positional = [
                piece for arg, piece in zip(expr.args, pieces, strict=False) if arg.name is None and not arg.star
            ]
            keywords = {arg.name: piece for arg, piece in zip(expr.args, pieces, strict=False) if arg.name is not None}
            starred = any(arg.star for arg in expr.args)
            out += self._called(expr, [] if starred else positional, keywords, point, after)
        return out

    def _called(
        self, expr: forms.Call, positional: list[Piece], keywords: dict[str, Piece], point: Point, state: State
    ) -> Evaluated:
        ev = self.project.evaluator
        ev.fresh()
        alts = [Alt(value, both) for value, world in ev.eval(expr.func, point)
                if (both := state.world.merge(world)) is not None]  # fmt: skip
        out: Evaluated = []
        for value, world in alts[:4]:
            there = state._replace(world=world)
            found = self._apply(value, expr, positional, keywords, point, there)
            out += found if found is not None else self._unresolved(expr, positional, keywords, point, there)
        return out or self._unresolved(expr, positional, keywords, point, state)

    def _apply(
        self, value: Value, expr: forms.Call, positional: list[Piece], keywords: dict[str, Piece], point: Point,
        state: State,
    ) -> Evaluated | None:  # fmt: skip
        """What calling a known value gives; None where it is not known what that does."""
        ev, args = self.project.evaluator, calling.arguments(expr, point)
        if isinstance(value, Func):
            if value.scope.function.is_generator:
                return [(UNKNOWN_PIECE, state)]
            frame = ev.frame(value.scope, args, point, value.self_, value.closure)
            return self._inline(frame, positional, keywords, state)
        if isinstance(value, Instance):
            method = self.project.method(value.cls, "__call__") or self.project.method(value.cls, "forward")
            if method is None:
                return None
            return self._inline(ev.frame(method, args, point, value), positional, keywords, state)
        if isinstance(value, (Bound, LambdaFunc)):
            return [(computed([*positional, *keywords.values()], fresh=False)._replace(kind=""), state)]
        if isinstance(value, Made):
            return self._transformed_once(value, expr, positional, point, state)
        if isinstance(value, External) and "()" not in value.path:
            return [(self._library_call(value.path, expr, positional, keywords, point, state), state)]
        return None

    def _inline(self, frame: Frame, positional: list[Piece], keywords: Mapping[str, Piece], state: State) -> Evaluated:
        """Run a function of the project in place."""
        scope = frame.scope
        everything = [*positional, *keywords.values()]
        if len(self._running) >= MAX_DEPTH or scope in self._running:
            return [(computed(everything, fresh=False)._replace(kind=""), state)]
        params = [param.name for param in scope.function.params if param.kind in ("positional", "normal")]
        if scope.owner is not None and not scope.has_decorator("staticmethod"):
            params = params[1:]
        names = {name: piece for name, piece in [*zip(params, positional, strict=False), *keywords.items()]
                 if piece.kind or piece.stored or piece.turned or piece.drawn or piece.sources}  # fmt: skip
        exits = self.run(frame, State(names, state.kept, state.world, state.causes))
        sources = frozenset[str]().union(*(piece.sources for piece in everything))
        return [
            (piece._replace(sources=piece.sources | sources) if piece.kind != NONE else piece,
             State(state.names, after.kept, after.world, after.causes))
            for piece, _, after in exits
        ]  # fmt: skip

    def _transformed_once(
        self, value: Made, expr: forms.Call, positional: list[Piece], point: Point, state: State
    ) -> Evaluated | None:
        """A ``Compose`` can hold itself, as after ``transform = Compose([transform, ...])`` in each of many calls."""
        if value in self._transforming:
            return None
        self._transforming.append(value)
        try:
            return self._transformed(value, expr, positional, point, state)
        finally:
            self._transforming.pop()

    def _transformed(
        self, value: Made, expr: forms.Call, positional: list[Piece], point: Point, state: State
    ) -> Evaluated | None:
        """An object of a library that is called: a transform, or a ``Compose`` of them."""
        name = value.path.rpartition(".")[2]
        if not value.path.startswith("torchvision.transforms.") or not positional:
            return None
        if name == "Compose" and value.args is not None and len(value.args.positional) == 1:
            found: Evaluated = [(positional[0], state)]
            for many in self.project.evaluator.force(value.args.positional[0][0])[:1]:
                if not isinstance(many.value, Many) or many.value.open:
                    return [(UNKNOWN_PIECE, state)]
                for thunk in many.value.items:
                    inner = [alt.value for alt in self.project.evaluator.force(thunk)[:1]]
                    found = [
                        result
                        for piece, before in found
                        for result in (self._apply(inner[0], expr, [piece], {}, point, before) or [(Piece(), before)])
                    ][:MAX_STATES]
            return found
        if value.path in memory.REFUSING_TRANSFORMS:
            self._refuse(name, positional[0], expr, point, state)
            decoded = memory.still_decoded(name, positional[0])
            return [(Piece(TENSOR, fresh=True, sources=positional[0].sources, decoded=decoded), state)]
        return [(computed(positional[:1])._replace(decoded=memory.still_decoded(name, positional[0])), state)]

    def _refuse(self, call: str, piece: Piece, expr: forms.Call, point: Point, state: State) -> None:
        if piece.turned is not None:
            self.refusals.append(Refusal(call, point.module, expr.at, point.link, piece.turned, state.world))

    def _library_call(
        self, path: str, expr: forms.Call, positional: list[Piece], keywords: dict[str, Piece], point: Point,
        state: State,
    ) -> Piece:  # fmt: skip
        first = positional[0] if positional else UNKNOWN_PIECE
        name = path.rpartition(".")[2]
        sources = frozenset[str]().union(*(piece.sources for piece in (*positional, *keywords.values())))
        if path in memory.REFUSING:
            certain = path in ("torch.from_numpy", "torchvision.transforms.functional.to_tensor")
            if certain or first.kind == ARRAY:
                self._refuse(name, first, expr, point, state)
        if "out" in keywords:
            self._note(
                keywords["out"], "cumulative" if keywords["out"] in positional else "settled", expr, point, state
            )
        if path in memory.FIRST_ARGUMENT_EDITS or path in memory.DRAWING:
            mutable = first.kind in NUMERIC or first.kind in (LIST, PLAIN, LOADED)
            if mutable and not first.whole:
                self._note(first, "settled" if path.startswith("numpy.") and "random" not in path else "drawn",
                           expr, point, state)  # fmt: skip
        if path in memory.SHARING and first.kind in (ARRAY, TENSOR):
            return first._replace(kind=TENSOR, whole=False)
        if path in memory.TURNING:
            if path == "numpy.rot90" and self._quarter_turns(expr, point) in (0, 2, 4):
                return Piece(ARRAY, solid=True)
            turned = None if first.turned is not None else (point.module, expr.at)
            return first._replace(kind=ARRAY, turned=turned, whole=False, solid=True)
        if memory.is_view(path):
            return first._replace(whole=False) if first.kind in NUMERIC or first.turned else Piece(first.kind)
        if path in ("copy.copy", "copy.deepcopy"):
            return first._replace(stored=None, whole=False, fresh=True)
        made = memory.made_by(path, len(positional), "size" in keywords)
        if path == "numpy.load" and ("mmap_mode" in keywords or len(positional) > 1):
            return UNKNOWN_PIECE
        if path in ("builtins.list", "builtins.tuple", "builtins.sorted", "builtins.reversed") and first.kind:
            return Piece(LIST, solid=True, fresh=True, element=item_of(first)._replace(stored=None))
        if path in ("builtins.dict", "collections.OrderedDict"):
            return Piece(DICT, solid=True, fresh=True, parts=first.parts)
        if made.kind == TENSOR and first.kind == ARRAY and path.startswith("torch.nn"):
            return Piece()
        settled = path in _CONVERSIONS
        drawn = made.drawn or any(piece.drawn for piece in (*positional, *keywords.values()))
        decoded = made.decoded or memory.still_decoded(name, first)
        return made._replace(drawn=drawn, decoded=decoded, sources=frozenset() if settled else sources)

    def _quarter_turns(self, expr: forms.Call, point: Point) -> object:
        given = calling.argument(calling.arguments(expr, point), "k", 1)
        values = [alt.value for alt in self.project.evaluator.force(given)] if given is not None else []
        return values[0].value % 4 if len(values) == 1 and isinstance(values[0], Const) and isinstance(
            values[0].value, int) else None  # fmt: skip

    def _unresolved(
        self, expr: forms.Call, positional: list[Piece], keywords: dict[str, Piece], point: Point, state: State
    ) -> Evaluated:
        everything = [*positional, *keywords.values()]
        if not isinstance(expr.func, forms.Attr):
            return [(computed(everything, fresh=False)._replace(kind=""), state)]
        out: Evaluated = []
        for base, after in self.eval(expr.func.value, point, state):
            piece, later = self._method(base, expr.func, expr, positional, everything, point, after)
            decoded = memory.still_decoded(expr.func.name, base)
            if not decoded and "transform" in expr.func.name and positional and positional[0].decoded:
                decoded = memory.CONVERTED  # whatever it does, a decoded image it was
            out.append((piece._replace(decoded=decoded) if decoded else piece, later))
        return out

    def _method(
        self, base: Piece, func: forms.Attr, expr: forms.Call, positional: list[Piece], everything: list[Piece],
        point: Point, state: State,
    ) -> tuple[Piece, State]:  # fmt: skip
        name = func.name
        drawn = base.drawn or any(piece.drawn for piece in everything)
        sources = base.sources.union(*(piece.sources for piece in everything))
        if name in memory.COPIES:
            return base._replace(stored=None, whole=False, turned=None, fresh=True), state
        if name in memory.VIEW_METHODS and (base.kind in NUMERIC or base.turned is not None):
            if base.turned is not None and name in ("view", "unfold"):
                return Piece(base.kind), state
            return base._replace(whole=False, kind=ARRAY if name == "numpy" else base.kind), state
        if memory.is_tensor_edit(name) and base.kind in (TENSOR, ""):
            if name not in memory.SETTLED_EDITS or drawn:
                self._note(base, "drawn" if name in memory.RANDOM_EDITS or drawn else "cumulative", expr, point, state)
            else:
                self._note(base, "settled", expr, point, state)
            return base._replace(drawn=drawn), state
        edit = self._container_edit(base, name, len(positional))
        if edit:
            self._note(base, edit, expr, point, state)
        if name in ("append", "add", "extend", "insert") and positional:
            held = item_of(positional[-1]) if name == "extend" else positional[-1]
            return UNKNOWN_PIECE, self._hold(func.value, None, held, point, state)
        if name == "get" and base.kind == DICT and isinstance(expr.args[0].value, forms.Const):
            found = base.part(expr.args[0].value.value)
            if found is not None:
                return found, state
        if name == "get" and base.kind in (PLAIN, LOADED):
            return base._replace(whole=False, solid=False), state
        if name in memory.ARRAY_METHODS or name == "to_numpy":
            kept = any(arg.name == "copy" for arg in expr.args)
            return (
                Piece(ARRAY) if kept else Piece(ARRAY, solid=base.solid, flat=base.flat, drawn=drawn, fresh=True)
            ), state
        if name in memory.UNSURE_METHODS and base.kind in NUMERIC:
            return Piece(base.kind, solid=base.solid, drawn=drawn, sources=sources), state
        if name in memory.TENSOR_METHODS and base.kind == LOADED:
            return Piece(TENSOR, drawn=drawn, sources=sources), state
        if base.kind in NUMERIC:
            scalar = base.kind == ARRAY and name in ("mean", "sum", "min", "max", "std", "item", "argmax", "argmin")
            kind = "" if scalar or name in ("tolist", "size") else base.kind
            kind = SCALAR if name in ("item", "dim", "numel") else kind
            return Piece(kind, drawn=drawn, fresh=True, sources=sources), state
        if name in ("split", "splitlines", "rsplit", "readlines") and all(piece.kind == SCALAR for piece in positional):
            return Piece(LIST, solid=True, fresh=True, element=NUMBER, sources=sources), state
        settled = name in ("lower", "upper", "strip", "title", "rstrip", "lstrip")
        return Piece(drawn=drawn, sources=frozenset() if settled else sources), state

    def _container_edit(self, base: Piece, name: str, count: int) -> str:
        """How a method of a container or an array changes it; "" where it does not."""
        if base.kind == ARRAY and name in memory.ARRAY_EDITS:
            return "settled" if name in memory.SETTLED_EDITS else "cumulative"
        as_list = base.kind in (LIST, PLAIN, LOADED) and name in memory.LIST_EDITS
        as_dict = base.kind in (DICT, PLAIN, LOADED) and name in memory.DICT_EDITS
        if base.whole or not (as_list or as_dict):
            return ""
        settled = name in ("sort", "clear", "setdefault", "update", "remove") or as_dict and name == "pop" and count > 1
        return "settled" if settled else "cumulative"
