"""Expressions on a path: whose memory each is, and what evaluating it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dlcheck.facts import forms
from dlcheck.model import calling, conditions, values
from dlcheck.model.data import memory
from dlcheck.model.data.indexing import (
    constant_key,
    goes_back,
    has_slice,
    how_stored,
    index_key,
    is_basic,
    is_chosen,
    is_fancy,
    source,
)
from dlcheck.model.data.loaded import kind_by_use
from dlcheck.model.data.memory import (
    ARRAY,
    CONTAINERS,
    DICT,
    LIST,
    LOADED,
    NONE,
    NOTHING,
    NUMBER,
    NUMERIC,
    PLAIN,
    SCALAR,
    TENSOR,
    TUPLE,
    UNKNOWN_PIECE,
    Piece,
    computed,
    item_of,
    joined,
)
from dlcheck.model.data.traces import (
    Cause,
    Edit,
    Evaluated,
    Exit,
    Refusal,
    State,
    asks_about_sample,
    narrowed,
    none_test,
    root_name,
)
from dlcheck.model.scopes import Scope, last_name
from dlcheck.model.values import Const, External, Frame, Instance, Made, Many, Point, Value

if TYPE_CHECKING:
    from dlcheck.model.project import Project

MAX_STATES = 32
MAX_STEPS = 3_000


@dataclass
class Expressions:
    """Evaluates expressions on a path; notes edits of stored memory, refused arrays and what is yielded."""

    project: Project
    attributes: Callable[[Instance], Mapping[str, Piece]] = lambda _instance: {}
    edits: list[Edit] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    yielded: list[Exit] = field(default_factory=list)
    steps: int = 0
    _running: list[Scope] = field(default_factory=list)
    _transforming: list[Made] = field(default_factory=list)

    def run(self, frame: Frame, state: State) -> list[Exit]:
        """The ends of the paths through the frame's function."""
        raise NotImplementedError

    def _call(self, expr: forms.Call, point: Point, state: State) -> Evaluated:
        raise NotImplementedError

    def _inline(self, frame: Frame, positional: list[Piece], keywords: Mapping[str, Piece], state: State) -> Evaluated:
        raise NotImplementedError

    def _test(self, test: forms.Expr, point: Point, state: State) -> list[tuple[bool, State]]:
        """Both answers to a test that are possible on a path, and what is known after each."""
        known = self._known_truth(test, point, state)
        if known is not None:
            return [(known, state)]
        for _, after in self.eval(test, point, state)[:1]:
            state = after  # what it writes, it writes
        self.project.evaluator.fresh()
        out: list[tuple[bool, State]] = []
        cause = Cause("tested", point.link, asks_about_sample(test, state))
        for truth, world in conditions.truth(self.project.evaluator, test, point):
            both = state.world.merge(world)
            if both is not None and all(truth != answer or both != other.world for answer, other in out):
                out.append((truth, narrowed(test, truth, state._replace(world=both)).because(cause)))
        return out[:4]

    def _known_truth(self, test: forms.Expr, point: Point, state: State) -> bool | None:
        """The answer where the path itself knows it: whether a name holds None."""
        if isinstance(test, forms.Unary) and test.op == "not":
            inner = self._known_truth(test.value, point, state)
            return None if inner is None else not inner
        if isinstance(test, forms.Bool):
            sides = [self._known_truth(side, point, state) for side in (test.left, test.right)]
            decisive = test.op == "or"
            if decisive in sides:
                return decisive
            return None if None in sides else not decisive
        name, wanted = none_test(test)
        piece = state.names.get(name) if name else None
        if piece is None:
            return None
        if piece.kind == NONE:
            return wanted
        if piece.decoded in memory.MAY_GIVE_NONE:
            return None
        if isinstance(test, forms.Compare) and (piece.fresh or piece.kind not in ("", SCALAR, PLAIN, LOADED)):
            return not wanted if piece.kind else None
        return None

    def _assign(self, target: forms.Expr, piece: Piece, point: Point, state: State) -> State:
        if isinstance(target, forms.Name):
            return state.bind(target.id, piece)
        if isinstance(target, forms.Attr):
            key = self._attribute_key(target, point, state)
            return state if key is None else state._replace(kept={**state.kept, key: piece})
        if isinstance(target, forms.Sequence):
            for number, item in enumerate(target.items):
                if isinstance(item, forms.Star):
                    return state
                state = self._assign(item, item_of(piece, number), point, state)
            return state
        if isinstance(target, forms.Sub):
            for base, after in self.eval(target.value, point, state)[:1]:
                index = self.eval(target.index, point, after)[0][0]
                if base.kind == PLAIN and isinstance(constant_key(target.index), str):
                    base = base._replace(kind=DICT)  # of what json gives, only dicts have names
                self._note(base, how_stored(base, index_key(target), index, piece), target, point, after)
                return self._hold(target.value, constant_key(target.index), piece, point, after)
        return state

    def _hold(self, holder: forms.Expr, key: object, piece: Piece, point: Point, state: State) -> State:
        """A list or dict that a path made or keeps holds one thing more."""
        old = self._lookup(holder, point, state)
        if old is None or old.kind not in (LIST, DICT):
            return state
        kept = Piece() if piece.kind == SCALAR else piece._replace(stored=None, sources=frozenset())
        element = kept if old.element is None else joined([old.element, kept])
        parts = old.parts if key is None else (*(part for part in old.parts if part[0] != key), (key, piece))
        return self._rebind(holder, old._replace(element=element, parts=parts).bounded(), point, state)

    def _lookup(self, expr: forms.Expr, point: Point, state: State) -> Piece | None:
        if isinstance(expr, forms.Name):
            return state.names.get(expr.id)
        key = self._attribute_key(expr, point, state)
        return state.kept.get(key) if key is not None else None

    def _rebind(self, expr: forms.Expr, piece: Piece, point: Point, state: State) -> State:
        if isinstance(expr, forms.Name):
            return state.bind(expr.id, piece)
        key = self._attribute_key(expr, point, state)
        return state if key is None else state._replace(kept={**state.kept, key: piece})

    def _attribute_key(self, expr: forms.Expr, point: Point, state: State) -> tuple[Scope, str] | None:
        """The class and name that ``self.name`` stands for."""
        own = point.frame.self_
        if not isinstance(expr, forms.Attr) or not isinstance(expr.value, forms.Name) or not isinstance(own, Instance):
            return None
        scope = point.frame.scope
        if scope.owner is None or not scope.function.params or scope.function.params[0].name != expr.value.id:
            return None
        return (own.cls, expr.name) if expr.value.id not in state.names else None

    def _note(self, piece: Piece, how: str, expr: forms.Expr | forms.Stmt, point: Point, state: State) -> None:
        if piece.stored is not None:
            self.edits.append(Edit(piece, how, point.module, expr.at, point.link, state.world, root_name(expr)))

    def eval(self, expr: forms.Expr, point: Point, state: State) -> Evaluated:
        """The pieces that an expression can be on a path; never empty."""
        self.steps += 1
        if isinstance(expr, forms.Call) and self.steps <= MAX_STEPS:
            return self._call(expr, point, state)[:MAX_STATES] or [(UNKNOWN_PIECE, state)]
        evaluate = _EVALUATE.get(type(expr))
        if self.steps > MAX_STEPS or evaluate is None:
            return [(UNKNOWN_PIECE, state)]
        return evaluate(self, expr, point, state)[:MAX_STATES] or [(UNKNOWN_PIECE, state)]

    def _all(self, exprs: Iterable[forms.Expr], point: Point, state: State) -> list[tuple[list[Piece], State]]:
        found: list[tuple[list[Piece], State]] = [([], state)]
        for expr in exprs:
            found = [
                ([*pieces, piece], after) for pieces, before in found for piece, after in self.eval(expr, point, before)
            ][:MAX_STATES]
        return found

    def _constant(self, expr: forms.Const, point: Point, state: State) -> Evaluated:
        return [(NOTHING if expr.value is None else NUMBER, state)]

    def _name(self, expr: forms.Name, point: Point, state: State) -> Evaluated:
        known = state.names.get(expr.id)
        return [(known if known is not None else self._from_model(expr, point), state)]

    def _from_model(self, expr: forms.Expr, point: Point) -> Piece:
        """What the evaluator knows of an expression that no statement of the path explains."""
        self.project.evaluator.fresh()
        pieces = [self.of_value(value) for value in self.project.evaluator.values(expr, point)]
        found = joined([piece for piece in pieces if piece.kind != NONE] or pieces)
        if not found.kind and isinstance(expr, forms.Name):
            return annotated(point.frame.scope, expr.id) or found
        return found

    def of_value(self, value: Value, depth: int = 0) -> Piece:
        """The piece that a value of the evaluator is."""
        if isinstance(value, Const):
            return NOTHING if value.value is None else NUMBER
        if isinstance(value, Made):
            return self._of_made(value)
        if isinstance(value, External):
            return memory.library_attribute(value.path) or UNKNOWN_PIECE
        if isinstance(value, Many):
            items = [self.of_value(alt.value, depth + 1) for thunk in value.items[:1] if depth < 2
                     for alt in self.project.evaluator.force(thunk)[:1]]  # fmt: skip
            kind = value.kind if value.kind in (LIST, TUPLE) else ""
            return Piece(kind, solid=True, fresh=True, element=items[0] if items else None)
        return Piece(DICT, solid=True, fresh=True) if isinstance(value, values.Mapping) else UNKNOWN_PIECE

    def _of_made(self, value: Made) -> Piece:
        root = value.path.partition("[")[0].partition("()")[0]
        count = len(value.args.positional) if value.args is not None else 0
        if (
            root == "numpy.load"
            and value.args is not None
            and (len(value.args.positional) > 1 or calling.keyword(value.args, "mmap_mode") is not None)
        ):
            return UNKNOWN_PIECE
        piece = memory.made_by(root, count)
        rest = value.path.removeprefix(root)
        if not rest:
            return piece
        if root == "h5py.File" and rest.endswith("[:]") or rest.endswith((".to_numpy", ".astype", ".numpy")):
            return Piece(ARRAY, fresh=True)
        return Piece(piece.kind if piece.kind in NUMERIC or piece.kind in (PLAIN, LOADED) else "", fresh=True)

    def _attr(self, expr: forms.Attr, point: Point, state: State) -> Evaluated:
        key = self._attribute_key(expr, point, state)
        if key is not None:
            if key in state.kept:
                return [(state.kept[key], state)]
            own = point.frame.self_
            assert isinstance(own, Instance)
            return [(self._stored(own, expr, point), state)]
        out: Evaluated = []
        for base, after in self.eval(expr.value, point, state):
            if expr.name in memory.VIEW_ATTRIBUTES and (base.kind in NUMERIC or base.turned is not None):
                out.append((base._replace(whole=False), after))
            elif base.kind in NUMERIC or base.stored is not None:
                out.append((Piece(SCALAR if expr.name in ("shape", "size", "ndim", "dtype") else ""), after))
            else:
                found = self._from_model(expr, point)
                owner = self._attribute_key(expr.value, point, state)
                out.append((found._replace(stored=owner) if found.kind in NUMERIC and owner else found, after))
        return out

    def _stored(self, own: Instance, expr: forms.Attr, point: Point) -> Piece:
        """What an object keeps under a name since its construction."""
        piece = self.attributes(own).get(expr.name)
        if piece is None:
            piece = self._from_model(expr, point)
        if not piece.kind:
            bases = self.project.external_bases(own.cls)
            inherited = (memory.library_attribute(f"{base}().{expr.name}") for base in bases)
            piece = next((found for found in inherited if found is not None), piece)
        if piece.kind == LOADED:
            piece = piece._replace(kind=kind_by_use(self.project, own.cls, expr.name) or LOADED)
        if piece.kind in NUMERIC or piece.kind in CONTAINERS:
            return piece._replace(stored=(own.cls, expr.name), whole=True, fresh=False, decoded="", drawn=False)
        return piece._replace(fresh=False, drawn=False)

    def _sub(self, expr: forms.Sub, point: Point, state: State) -> Evaluated:
        out: Evaluated = []
        for base, after in self.eval(expr.value, point, state):
            if not base.kind and base.stored is None:
                inlined = self._sub_of_instance(expr, point, after)
                if inlined is not None:
                    out += inlined
                    continue
            for index, later in self.eval(expr.index, point, after):
                out.append((self._indexed(base, index, expr, point), later))
        return out

    def _sub_of_instance(self, expr: forms.Sub, point: Point, state: State) -> Evaluated | None:
        """``self.base[i]`` of another dataset of the project."""
        self.project.evaluator.fresh()
        for value in self.project.evaluator.values(expr.value, point):
            method = self.project.method(value.cls, "__getitem__") if isinstance(value, Instance) else None
            if method is not None and isinstance(value, Instance):
                args = calling.arguments_of(self.project.evaluator, (expr.index,), point)
                frame = self.project.evaluator.frame(method, args, point, value)
                return self._inline(frame, [NUMBER], {}, state)
        return None

    def _indexed(self, base: Piece, index: Piece, expr: forms.Sub, point: Point) -> Piece:
        key = constant_key(expr.index)
        if base.kind in (DICT, LIST, TUPLE):
            found = base.part(key) if key is not None else None
            item = found if found is not None else base.element if base.element is not None else UNKNOWN_PIECE
            if isinstance(expr.index, forms.Slice):
                return base._replace(stored=None, whole=False, fresh=True)
            if base.stored is not None:
                return item._replace(stored=base.stored, whole=False, fresh=False, decoded="", chosen=True,
                                     sources=source(expr))  # fmt: skip
            return item
        if base.kind in (PLAIN, LOADED):
            sliced = isinstance(expr.index, forms.Slice)
            return base._replace(whole=False, decoded="", solid=False, chosen=True, sources=source(expr),
                                 stored=None if sliced else base.stored)  # fmt: skip
        if isinstance(key, str) and base.kind == ARRAY:
            return Piece(ARRAY, fresh=True)  # of an archive: read again each time
        turned = (point.module, expr.at) if goes_back(expr.index) else None
        several = isinstance(expr.index, forms.Sequence)
        if turned is not None and (base.kind == ARRAY or several):
            if base.turned is not None:
                return base._replace(turned=None, kind=ARRAY, whole=False)  # perhaps back again
            return base._replace(kind=ARRAY, turned=turned, whole=False, solid=True)
        if base.kind not in NUMERIC and base.turned is None:
            if base.stored is not None:
                return base._replace(kind="", whole=False, sources=source(expr))
            return Piece(drawn=base.drawn or index.drawn)
        if is_fancy(expr.index, index):
            return Piece(base.kind, solid=True, fresh=True, drawn=base.drawn or index.drawn)
        if base.flat and not isinstance(expr.index, forms.Slice):
            return Piece(SCALAR, drawn=base.drawn or index.drawn)
        basic = is_basic(expr.index, index)
        if not basic:
            return Piece(base.kind, fresh=False)  # a number gives a view, an array of numbers a copy
        solid = isinstance(expr.index, forms.Slice) or several and has_slice(expr.index)
        return base._replace(whole=False, solid=solid, drawn=base.drawn or index.drawn, sources=source(expr),
                             chosen=base.chosen or is_chosen(expr.index))  # fmt: skip

    def _slice(self, expr: forms.Slice, point: Point, state: State) -> Evaluated:
        bounds = [bound for bound in (expr.lower, expr.upper) if bound is not None]
        return [(Piece(SCALAR, drawn=any(piece.drawn for piece in pieces)), after)
                for pieces, after in self._all(bounds, point, state)]  # fmt: skip

    def _sequence(self, expr: forms.Sequence, point: Point, state: State) -> Evaluated:
        out: Evaluated = []
        for pieces, after in self._all(expr.items, point, state):
            parts = () if any(isinstance(item, forms.Star) for item in expr.items) else tuple(enumerate(pieces))
            element = joined(pieces) if pieces else None
            drawn = any(piece.drawn for piece in pieces)
            kind = expr.kind if expr.kind in (LIST, TUPLE) else ""
            sources = frozenset[str]().union(*(piece.sources for piece in pieces))
            made = Piece(kind, solid=True, drawn=drawn, fresh=True, parts=parts, element=element, sources=sources)
            out.append((made.bounded(), after))
        return out

    def _dict(self, expr: forms.Dict, point: Point, state: State) -> Evaluated:
        keyed = [entry for entry in expr.entries if isinstance(entry.key, forms.Const)]
        out: Evaluated = []
        for pieces, after in self._all([entry.value for entry in keyed], point, state):
            parts = tuple((entry.key.value, piece) for entry, piece in zip(keyed, pieces, strict=False)
                          if isinstance(entry.key, forms.Const))  # fmt: skip
            out.append((Piece(DICT, solid=True, fresh=True, parts=parts).bounded(), after))
        return out

    def _binary(self, expr: forms.Binary, point: Point, state: State) -> Evaluated:
        return [
            (
                computed(pieces)._replace(decoded=memory.CONVERTED if any(piece.decoded for piece in pieces) else ""),
                after,
            )
            for pieces, after in self._all((expr.left, expr.right), point, state)
        ]

    def _unary(self, expr: forms.Unary, point: Point, state: State) -> Evaluated:
        if expr.op == "not":
            return [(NUMBER, after) for _, after in self.eval(expr.value, point, state)]
        return [(computed([piece]), after) for piece, after in self.eval(expr.value, point, state)]

    def _compare(self, expr: forms.Compare, point: Point, state: State) -> Evaluated:
        return [
            (computed(pieces)._replace(sources=frozenset()), after)
            for pieces, after in self._all((expr.left, *expr.rights), point, state)
        ]

    def _bool(self, expr: forms.Bool, point: Point, state: State) -> Evaluated:
        out: Evaluated = []
        for left, after in self.eval(expr.left, point, state):
            if expr.op == "or" and left.kind != NONE:
                out.append((left, after))
            if expr.op == "or" or left.kind == NONE:
                out += self.eval(expr.right, point, after) if expr.op == "or" else [(left, after)]
            else:
                out.append((Piece(drawn=left.drawn), after))
        return out

    def _if_exp(self, expr: forms.IfExp, point: Point, state: State) -> Evaluated:
        out: Evaluated = []
        for truth, after in self._test(expr.test, point, state):
            out += self.eval(expr.body if truth else expr.orelse, point, after)
        return out

    def _comp(self, expr: forms.Comp, point: Point, state: State) -> Evaluated:
        inner = point.module.inners.get(expr.at)
        here, names = state, dict(state.names)
        for number, clause in enumerate(expr.clauses):
            where = point if number == 0 else point._replace(inner=inner)
            source, here = self.eval(clause.iter, where, here._replace(names=names))[0]
            here = self._assign(clause.target, item_of(source), where, here)
            names = dict(here.names)
        element = self.eval(expr.value, point._replace(inner=inner), here)[0][0]
        kind = {"list": LIST, "dict": DICT}.get(expr.kind, "")
        return [(Piece(kind, solid=True, fresh=True, element=element, drawn=element.drawn).bounded(), state)]

    def _walrus(self, expr: forms.Walrus, point: Point, state: State) -> Evaluated:
        found = self.eval(expr.value, point, state)
        return [(piece, self._assign(expr.target, piece, point, after)) for piece, after in found]

    def _yield(self, expr: forms.Yield, point: Point, state: State) -> Evaluated:
        if expr.value is not None and not expr.delegates:
            self.yielded += [Exit(piece, point.link, after) for piece, after in self.eval(expr.value, point, state)]
        return [(UNKNOWN_PIECE, state)]


_EVALUATE: dict[type, Callable[..., Any]] = {
    forms.Const: Expressions._constant, forms.Name: Expressions._name, forms.Attr: Expressions._attr,
    forms.Sub: Expressions._sub, forms.Sequence: Expressions._sequence, forms.Dict: Expressions._dict,
    forms.Binary: Expressions._binary, forms.Unary: Expressions._unary, forms.Compare: Expressions._compare,
    forms.Bool: Expressions._bool, forms.IfExp: Expressions._if_exp, forms.Comp: Expressions._comp,
    forms.Walrus: Expressions._walrus, forms.Yield: Expressions._yield, forms.Slice: Expressions._slice,
}  # fmt: skip


def annotated(scope: Scope, name: str) -> Piece | None:
    """What a parameter's annotation says it is."""
    param = (
        next((param for param in scope.function.params if param.name == name), None)
        if scope.kind == "function"
        else None
    )
    if param is None or param.annotation is None:
        return None
    said = last_name(param.annotation)
    if isinstance(param.annotation, forms.Sub):
        said = last_name(param.annotation.value)
        if said in ("List", "list", "Sequence"):
            return Piece(LIST, solid=True)
    if said in ("ndarray", "NDArray"):
        return Piece(ARRAY)
    if said in ("Tensor", "FloatTensor", "LongTensor"):
        return Piece(TENSOR)
    return Piece(SCALAR) if said in ("int", "float", "str", "bool") else None
