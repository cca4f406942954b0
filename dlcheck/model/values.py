"""What an expression can be: constants, and the few kinds of object that a training program is about."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dlcheck.facts import forms
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.facts.forms import Expr
    from dlcheck.model.scopes import Inner, Link, Module, Scope


@dataclass(eq=False, slots=True)
class Frame:
    """A scope as one call sees it.  Without ``args`` the caller is any caller of the function.

    Frames are interned by the evaluator: equal frames are the same object.
    """

    scope: Scope
    args: Arguments | None = None
    site: Point | None = None  # where it is called
    self_: Value | None = None
    closure: Frame | None = None
    depth: int = 0


class Point(NamedTuple):
    """Where an expression is evaluated."""

    frame: Frame
    link: Link
    inner: Inner | None = None

    @property
    def module(self) -> Module:
        return self.link.scope.module


@dataclass(frozen=True, slots=True, eq=False)
class Thunk:
    """An expression with the point at which to evaluate it, or alternatives already known."""

    expr: Expr | None
    point: Point | None
    alts: tuple[Alt, ...] = ()

    def _key(self) -> tuple[Hashable, ...]:
        # The forms below an expression are never compared: its number and its frame name it.
        return (self.expr.at if self.expr else None, self.point.frame if self.point else None, self.alts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thunk) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


class Arguments(NamedTuple):
    """The arguments of a call.  A positional one with ``True`` is ``*value``."""

    positional: tuple[tuple[Thunk, bool], ...]
    keywords: tuple[tuple[str, Thunk], ...]
    spreads: tuple[Thunk, ...]  # **value
    call: forms.Call | None = None
    point: Point | None = None


class Origin(NamedTuple):
    """Where a value comes from: words for a message, and the place."""

    words: str
    module: Module
    at: int


@dataclass(frozen=True, slots=True)
class Const:
    """A constant.

    ``free`` is the key of a default that the user can override; ``chosen`` marks what a flag is
    when the user has overridden it.
    """

    value: object
    kind: type = field(init=False, repr=False)
    origin: Origin | None = field(default=None, compare=False)
    free: Hashable = field(default=None, compare=False)
    chosen: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", type(self.value))

    def __hash__(self) -> int:
        try:
            return hash((self.kind, self.value))
        except TypeError:
            return hash(self.kind)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value nothing is known of; the same ``token`` means the same value."""

    token: Hashable = None


@dataclass(frozen=True, slots=True)
class External:
    """Something of a library: a module, class or function, by its dotted path.

    ``of`` is the object whose method it is, if it is one's.
    """

    path: str
    of: Made | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Made:
    """What calling the library's ``path`` gave.  Calling a method ``m`` of it gives ``path().m``."""

    path: str
    args: Arguments | None = field(default=None, compare=False)
    key: Hashable = None
    base: Value | None = field(default=None, compare=False)  # the object whose method was called


@dataclass(frozen=True, slots=True)
class Func:
    """A function of the project, bound to ``self_`` where it is a method of an object."""

    scope: Scope
    self_: Value | None = None
    closure: Frame | None = None


@dataclass(frozen=True, slots=True)
class LambdaFunc:
    form: forms.Lambda = field(compare=False)
    key: Hashable
    point: Point = field(compare=False)


@dataclass(frozen=True, slots=True)
class ClassRef:
    scope: Scope


@dataclass(frozen=True, slots=True)
class Bound:
    """``functools.partial(func, ...)``."""

    func: Value
    args: Arguments = field(compare=False)
    key: Hashable = None


@dataclass(frozen=True, slots=True)
class Instance:
    """An object of a project class.  Without ``args`` any object of the class."""

    cls: Scope
    args: Arguments | None = field(default=None, compare=False)
    key: Hashable = None
    point: Point | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SuperOf:
    cls: Scope
    self_: Value


@dataclass(frozen=True, slots=True)
class ModuleRef:
    module: Module


@dataclass(frozen=True, slots=True)
class LoaderRef:
    """A DataLoader: its constructor call and the frame in which that runs.

    ``maker`` is the project subclass or the library class.
    """

    maker: Scope | External
    args: Arguments = field(compare=False)
    point: Point = field(compare=False)
    key: Hashable = None


@dataclass(frozen=True, slots=True)
class Managed:
    """A loader that a framework has taken over: it moves the batches itself."""

    value: Value
    framework: str


@dataclass(frozen=True, slots=True)
class Many:
    """A tuple, list or set: items are thunks; ``open`` when there may be others, ``left_out`` if they are counted."""

    kind: str
    items: tuple[Thunk, ...]
    open: bool = False
    left_out: int | None = None

    @property
    def length(self) -> int | None:
        """The number of items, where it is known."""
        if not self.open:
            return len(self.items)
        return None if self.left_out is None else len(self.items) + self.left_out


@dataclass(frozen=True, slots=True)
class Mapping:
    """A dict with string keys; ``open`` when it may hold others."""

    entries: tuple[tuple[object, Thunk], ...]
    open: bool = False

    def get(self, key: object) -> Thunk | None:
        for name, thunk in reversed(self.entries):
            if name == key:
                return thunk
        return None


@dataclass(frozen=True, slots=True)
class Elements:
    """What a comprehension yields."""

    form: forms.Comp = field(compare=False)
    point: Point
    key: Hashable


@dataclass(frozen=True, slots=True)
class Generated:
    """A generator object of a project function."""

    frame: Frame


@dataclass(frozen=True, slots=True)
class Iterating:
    """``iter(x)``, ``enumerate(x)``, ``tqdm(x)``, ``zip(a, b)``, ...: something iterated through ``kind``."""

    kind: str
    of: tuple[Value, ...]
    key: Hashable = None


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a loader, or a part of it.  ``exact``: still the very memory that the loader gave."""

    loader: LoaderRef
    managed: str = ""
    exact: bool = True
    part: bool = False  # an element of the batch


@dataclass(frozen=True, slots=True)
class Pinned:
    """A tensor that ``.pin_memory()`` of the program itself pinned."""

    key: Hashable


@dataclass(frozen=True, slots=True)
class Moved:
    """A tensor that was copied to a device, at ``place``."""

    value: Value
    key: Hashable
    place: tuple[Module, int] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Undefined:
    """Not set on this path; look before it."""


Value: TypeAlias = (
    "Const | Unknown | External | Made | Func | LambdaFunc | ClassRef | Bound | Instance | SuperOf | ModuleRef | "
    "LoaderRef | Managed | Many | Mapping | Elements | Generated | Iterating | Batch | Pinned | Moved | Undefined"
)


class Alt(NamedTuple):
    """One possible value and the world in which it is that."""

    value: Value
    world: World


UNDEFINED = Undefined()
UNKNOWN = Unknown()

MAX_ALTS = 12


def normal(alts: list[Alt]) -> list[Alt]:
    """Without repetitions, bounded, and without worlds that make no difference."""
    if len(alts) == 1:
        return alts
    out = list(dict.fromkeys(alts))
    if len(out) > 1 and all(alt.value == out[0].value for alt in out[1:]):
        common = set(out[0].world.choices.items())
        for alt in out[1:]:
            common &= alt.world.choices.items()
        out = [Alt(out[0].value, World(dict(common)))]
    return out[:MAX_ALTS]
