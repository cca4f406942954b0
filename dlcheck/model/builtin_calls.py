"""What the calls that matter give: of builtins, of torch, of dicts, batches and loaders."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import calling, library, settings
from dlcheck.model.iteration import elements, local_rank, part_of
from dlcheck.model.values import (
    UNKNOWN,
    Alt,
    Arguments,
    Batch,
    Bound,
    ClassRef,
    Const,
    Elements,
    External,
    Generated,
    Instance,
    Iterating,
    LoaderRef,
    Made,
    Managed,
    Many,
    Mapping,
    Moved,
    Pinned,
    Point,
    Thunk,
    Unknown,
    Value,
)
from dlcheck.model.worlds import ANY

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.scopes import Module

# Methods that copy a tensor to a device, or may.
MOVES = frozenset({"to", "cuda", "xpu", "npu", "mps", "type"})


# -- methods on values that the model knows


def method_on_value(ev: Evaluator, expr: forms.Call, args: Arguments, point: Point) -> list[Alt] | None:
    """A method called on a dict, a list, a batch, a loader, ...; None where none of that is at hand."""
    func = expr.func
    assert isinstance(func, forms.Attr)
    if isinstance(func.value, forms.Name) and func.value.id in ("self", "cls", "torch", "np", "os", "nn"):
        return None
    receivers = ev.eval(func.value, point)
    if func.name == "format" and all(_is_text(alt.value) for alt in receivers):
        return ev.bind(receivers, lambda value: [Alt(_formatted(value, args), ANY)])
    if func.name == "pin_memory" and not any(isinstance(alt.value, (Instance, LoaderRef)) for alt in receivers):
        return [Alt(Pinned(calling.call_key(args)), ANY)]
    if func.name in _FLUENT and any(_is_plain_module(ev, alt.value, func.name) for alt in receivers):
        return receivers
    if func.name in ("to", "cuda") and all(isinstance(alt.value, (Unknown, Made)) for alt in receivers):
        return _moved_unknown(ev, func.name, args, point)
    if not any(isinstance(alt.value, _RECEIVERS) for alt in receivers):
        return None
    return ev.bind(receivers, lambda value: _method(ev, value, expr, func, args, point))


def _is_text(value: Value) -> bool:
    return isinstance(value, Const) and isinstance(value.value, str)


def _formatted(template: Value, args: Arguments) -> Value:
    """``"cuda:{}".format(rank)``: what it begins with is known, whatever is put in."""
    assert isinstance(template, Const)
    text, brace, _ = str(template.value).partition("{")
    if not brace:
        return template
    return Made(f"text:{text}", None, calling.call_key(args)) if text else Unknown(calling.call_key(args))


_RECEIVERS = (Mapping, Many, Batch, Moved, Pinned, LoaderRef, Managed, Iterating, Elements, Generated)


# Methods of a torch.nn.Module that return the module itself.
_FLUENT = frozenset(
    {"to", "cuda", "cpu", "train", "eval", "float", "double", "half", "bfloat16", "requires_grad_", "apply"}
)


def _is_plain_module(ev: Evaluator, value: Value, method: str) -> bool:
    """Whether it is a network of torch, or one of the project that leaves a method as torch has it."""
    if isinstance(value, Made):
        return value.path == "torch.compile" or is_torch_module(value.path)
    return (
        isinstance(value, Instance)
        and ev.project.method(value.cls, method) is None
        and any(path.startswith("torch.nn.") for path in ev.project.external_bases(value.cls))
    )


def is_torch_module(path: str) -> bool:
    """Whether a library's name is a class of ``torch.nn``, so that calling it makes a network or a loss."""
    name = path.rpartition(".")[2]
    return path.startswith("torch.nn.") and "()" not in path and name[:1].isupper() and name != "Parameter"


def _names_parts(args: Arguments) -> bool:
    """Whether ``.to(device, "x", "y")`` moves only some attributes of an object, as graphs of PyTorch Geometric do."""
    return any(
        isinstance(thunk.expr, forms.Const) and isinstance(thunk.expr.value, str) for thunk, _ in args.positional[1:]
    )


def _moved_unknown(ev: Evaluator, name: str, args: Arguments, point: Point) -> list[Alt] | None:
    """A tensor of which nothing else is known, or a module, on the GPU where that is certain."""
    from dlcheck.model.transfers import targets_of

    kinds = targets_of(ev, name, args)
    if not any(kind == "cuda" for kind, _ in kinds) or _names_parts(args):
        return None
    unknown = Unknown(calling.call_key(args))
    return [
        Alt(Moved(unknown, calling.call_key(args), _here(args)) if kind == "cuda" else unknown, world)
        for kind, world in kinds
    ]


def _here(args: Arguments) -> tuple[Module, int] | None:
    if args.call is None or args.point is None:
        return None
    return args.point.module, args.call.at


def _method(
    ev: Evaluator, value: Value, expr: forms.Call, func: forms.Attr, args: Arguments, point: Point
) -> list[Alt]:
    if isinstance(value, Mapping):
        return _mapping_method(ev, value, func.name, args)
    if isinstance(value, Many):
        return _many_method(ev, value, func.name, args)
    if isinstance(value, (Batch, Pinned)):
        return tensor_method(ev, value, func.name, args, point)
    if isinstance(value, Moved):
        if func.name in ("cpu", "numpy", "tolist", "item", "size", "dim", "numel"):
            return [Alt(Unknown(calling.call_key(args)), ANY)]
        return [Alt(value, ANY)]
    if isinstance(value, LoaderRef) and func.name == "__iter__":
        return [Alt(Iterating("iter", (value,), calling.call_key(args)), ANY)]
    if isinstance(value, Elements) and value.form.kind == "dict" and func.name in ("items", "values"):
        return [Alt(Iterating(func.name, (value,), calling.call_key(args)), ANY)]
    if isinstance(value, (Iterating, Generated, Elements)) and func.name in ("__next__", "next"):
        return elements(ev, [Alt(value, ANY)], ("next", point.module.name, expr.at))
    from dlcheck.model import attributes

    return ev.bind(
        attributes.get(ev, value, func.name, func, point), lambda method: calling.call_function(ev, method, args)
    )


def _mapping_method(ev: Evaluator, value: Mapping, name: str, args: Arguments) -> list[Alt]:
    if name in ("items", "values", "keys"):
        return [Alt(value if name == "keys" else Iterating(name, (value,), calling.call_key(args)), ANY)]
    if name in ("copy", "__copy__"):
        return [Alt(value, ANY)]
    first = calling.positional(args, 0)
    if name in ("get", "pop", "setdefault") and first is not None:
        return ev.bind(ev.force(first), lambda key: _lookup(ev, value, key, calling.positional(args, 1), name))
    return [Alt(Unknown(calling.call_key(args)), ANY)]


def _lookup(ev: Evaluator, value: Mapping, key: Value, default: Thunk | None, method: str) -> list[Alt]:
    if not isinstance(key, Const):
        return [Alt(UNKNOWN, ANY)]
    thunk = value.get(key.value)
    if thunk is not None:
        return ev.force(thunk)
    if value.open:
        return [Alt(UNKNOWN, ANY)]
    return ev.force(default) if default is not None else [Alt(Const(None), ANY)]


def _many_method(ev: Evaluator, value: Many, name: str, args: Arguments) -> list[Alt]:
    if name == "copy":
        return [Alt(value, ANY)]
    if name == "pop" and len(value.items) == 1:
        return ev.force(value.items[0])
    return [Alt(Unknown(calling.call_key(args)), ANY)]


def tensor_method(ev: Evaluator, value: Batch | Pinned, name: str, args: Arguments, point: Point) -> list[Alt]:
    """A method of a batch or of a tensor of it."""
    if name in MOVES:
        from dlcheck.model.transfers import targets_of

        there = Moved(value, calling.call_key(args), _here(args))
        return [
            Alt(_derived(value) if kind == "dtype" else value if kind == "cpu" else there, world)
            for kind, world in targets_of(ev, name, args)
        ]
    if name == "pin_memory":
        return [Alt(Pinned(calling.call_key(args)), ANY)]
    if name in library.VIEWS:
        if name in ("items", "values"):
            return [Alt(Iterating(name, (value,), calling.call_key(args)), ANY)]
        return [Alt(part_of(value) if isinstance(value, Batch) else value, ANY)]
    if name in ("numpy", "tolist", "item", "size", "dim", "numel", "shape"):
        return [Alt(Unknown(calling.call_key(args)), ANY)]
    return [Alt(_derived(value), ANY)]


def _derived(value: Batch | Pinned) -> Value:
    """A new tensor computed of a batch: no longer the loader's own memory."""
    return Batch(value.loader, value.managed, False, True) if isinstance(value, Batch) else UNKNOWN


# -- functions of libraries


def call_external(ev: Evaluator, path: str, args: Arguments, base: Made | None = None) -> list[Alt]:
    """What calling a library's ``path`` gives; ``base`` is the object whose method it is."""
    path = library.canonical(path)
    if library.loader_class(path) and args.point is not None:
        return [Alt(LoaderRef(External(path), args, args.point, calling.call_key(args)), ANY)]
    special = _SPECIAL.get(path)
    if special is not None:
        return special(ev, args)
    kind = library.WRAPPING_ITERATORS.get(path)
    if kind is not None:
        return _wrap(ev, kind, args, path)
    root, name = path.partition(".")[0], path.rpartition(".")[2]
    if root in ("tqdm", "rich", "fastprogress") and name in ("tqdm", "trange", "progress_bar"):
        return _wrap(ev, "tqdm", args, path)
    framework = library.framework_of(path)
    if framework and name in _PREPARES:
        return _prepared(ev, framework, args)
    if path.startswith("torch.") and _computes(path):
        return _computed(ev, path, args, base)
    return [Alt(calling.made(path, args, base), ANY)]


_PREPARES = frozenset(
    {
        "prepare",
        "setup_dataloaders",
        "prepare_data_loader",
        "setup",
        "auto_dataloader",
        "prepare_dataloader",
        "boost",
    }
)


def _prepared(ev: Evaluator, framework: str, args: Arguments) -> list[Alt]:
    """``accelerator.prepare(model, loader)``: the same, but loaders are the framework's now."""
    thunks = [
        Thunk(None, None, tuple(Alt(managed(value, framework), world) for value, world in ev.force(thunk)))
        for thunk, starred in args.positional
        if not starred
    ]
    if any(starred for _, starred in args.positional):
        return [Alt(UNKNOWN, ANY)]
    if len(thunks) == 1:
        return list(thunks[0].alts)
    return [Alt(Many("tuple", tuple(thunks)), ANY)]


def managed(value: Value, framework: str) -> Value:
    return Managed(value, framework) if isinstance(value, LoaderRef) else value


def _wrap(ev: Evaluator, kind: str, args: Arguments, path: str) -> list[Alt]:
    number = 1 if path in ("builtins.filter", "itertools.takewhile") else 0
    first = calling.positional(args, number) or calling.keyword(args, "iterable")
    if first is None:
        if kind == "list" and not args.positional:
            return [Alt(Many(path.removeprefix("builtins."), ()), ANY)]
        return [Alt(calling.made(path, args), ANY)]

    def step(value: Value) -> list[Alt]:
        if isinstance(value, Many) and kind == "list":
            return [Alt(Many(path.removeprefix("builtins.").replace("sorted", "list"), value.items, value.open), ANY)]
        if isinstance(value, (Const, Unknown)) and kind == "list":
            return [Alt(Unknown(calling.call_key(args)), ANY)]
        return [Alt(Iterating(kind, (value,), calling.call_key(args)), ANY)]

    return ev.bind(ev.force(first), step)


# A function of torch that computes on tensors passes a batch on as something new.
_NOT_COMPUTING = (
    "torch.utils.",
    "torch.optim.",
    "torch.distributed.",
    "torch.multiprocessing.",
    "torch.cuda.",
    "torch.backends.",
)


def _computes(path: str) -> bool:
    return not path.startswith(_NOT_COMPUTING) and path.rpartition(".")[2][:1].islower() and path != "torch.device"


def _computed(ev: Evaluator, path: str, args: Arguments, base: Made | None) -> list[Alt]:
    from dlcheck.model.transfers import TENSOR_MAKERS, device_kinds

    for thunk, _ in args.positional[:2]:
        for alt in ev.force(thunk):
            if isinstance(alt.value, Batch):
                return [Alt(Batch(alt.value.loader, alt.value.managed, False, True), alt.world)]
    if path in TENSOR_MAKERS:
        device = calling.keyword(args, "device")
        if device is not None and any(kind == "cuda" for kind, _ in device_kinds(ev, device)):
            return [Alt(Moved(UNKNOWN, calling.call_key(args), _here(args)), ANY)]
    return [Alt(calling.made(path, args, base), ANY)]


def _dict(ev: Evaluator, args: Arguments) -> list[Alt]:
    alts: list[Alt] = [Alt(Mapping(()), ANY)]
    for thunk in [thunk for thunk, _ in args.positional] + list(args.spreads):
        alts = ev.combine(alts, thunk, lambda old, other: [Alt(calling.joined(old, other), ANY)])
    own = Mapping(tuple(args.keywords))
    return ev.bind(alts, lambda old: [Alt(calling.joined(old, own), ANY)])


def _number(convert: Callable[..., object]) -> Callable[[Evaluator, Arguments], list[Alt]]:
    def step(ev: Evaluator, args: Arguments) -> list[Alt]:
        first = calling.positional(args, 0)
        if first is None:
            return [Alt(Unknown(calling.call_key(args)), ANY)]

        def one(value: Value) -> list[Alt]:
            if isinstance(value, Const):
                try:
                    return [Alt(Const(convert(value.value), value.origin, value.free), ANY)]
                except (TypeError, ValueError, OverflowError):
                    pass
            if isinstance(value, Unknown) or calling.counts_cpus(value):
                return [Alt(value, ANY)]
            return [Alt(Unknown(calling.call_key(args)), ANY)]

        return ev.bind(ev.force(first), one)

    return step


_as_text = _number(str)


def _text(ev: Evaluator, args: Arguments) -> list[Alt]:
    """``str(x)``; of a device it is what names the device."""
    first = calling.positional(args, 0)
    if first is None:
        return _as_text(ev, args)

    def one(value: Value) -> list[Alt]:
        if isinstance(value, Made) and value.path == "torch.device" and value.args is not None:
            named = calling.argument(value.args, "type", 0) or calling.argument(value.args, "device", 0)
            if named is not None and len(value.args.positional) + len(value.args.keywords) == 1:
                return ev.bind(ev.force(named), one)
        if isinstance(value, Made) and value.path.startswith("text:"):
            return [Alt(value, ANY)]
        return _as_text(ev, args._replace(positional=((calling.known(value), False),)))

    return ev.bind(ev.force(first), one)


def _extreme(pick: Callable[..., object]) -> Callable[[Evaluator, Arguments], list[Alt]]:
    def add(many: Value, value: Value) -> list[Alt]:
        if not isinstance(many, Many):
            return [Alt(many, ANY)]
        return [Alt(Many("tuple", (*many.items, calling.known(value))), ANY)]

    def step(ev: Evaluator, args: Arguments) -> list[Alt]:
        alts: list[Alt] = [Alt(Many("tuple", ()), ANY)]
        for thunk, starred in args.positional:
            if starred:
                return [Alt(Unknown(calling.call_key(args)), ANY)]
            alts = ev.combine(alts, thunk, add)
        return ev.bind(alts, lambda many: [Alt(_pick(pick, many, args), ANY)])

    return step


def _pick(pick: Callable[..., object], many: Value, args: Arguments) -> Value:
    if not isinstance(many, Many):
        return many
    values = [thunk.alts[0].value for thunk in many.items]
    if len(values) > 1 and all(isinstance(value, Const) for value in values):
        constants = [value for value in values if isinstance(value, Const)]
        try:
            best = pick(*(value.value for value in constants))
        except TypeError:
            return Unknown(calling.call_key(args))
        free = next((value.free for value in constants if value.free is not None), None)
        return Const(best, next((value.origin for value in constants if value.origin), None), free)
    if pick is max and any(isinstance(value, Const) and _positive(value.value) for value in values):
        # ``max(1, os.cpu_count() - 2)``: the larger of the two is the machine's.
        cpus = next((value for value in values if calling.counts_cpus(value)), None)
        return Made("positive", args, calling.call_key(args), cpus)
    if pick is min and all(map(_is_positive, values)):
        return Made("positive", args, calling.call_key(args))
    return Unknown(calling.call_key(args))


def _positive(value: object) -> bool:
    return isinstance(value, (int, float)) and value > 0


def _is_positive(value: Value) -> bool:
    if isinstance(value, Const):
        return _positive(value.value)
    return isinstance(value, Made) and (value.path in library.CPU_COUNTS or value.path == "positive")


def _next(ev: Evaluator, args: Arguments) -> list[Alt]:
    first = calling.positional(args, 0)
    if first is None:
        return [Alt(UNKNOWN, ANY)]
    return elements(ev, ev.force(first), ("next", *calling.call_key(args)))


def _several(kind: str) -> Callable[[Evaluator, Arguments], list[Alt]]:
    def add(old: Value, value: Value) -> list[Alt]:
        if not isinstance(old, Iterating):
            return [Alt(old, ANY)]
        return [Alt(Iterating(kind, (*old.of, value), old.key), ANY)]

    def step(ev: Evaluator, args: Arguments) -> list[Alt]:
        alts: list[Alt] = [Alt(Iterating(kind, (), calling.call_key(args)), ANY)]
        for thunk, starred in args.positional:
            if starred:
                return [Alt(Unknown(calling.call_key(args)), ANY)]
            alts = ev.combine(alts, thunk, add)
        return alts

    return step


def _enumerate(ev: Evaluator, args: Arguments) -> list[Alt]:
    first = calling.positional(args, 0) or calling.keyword(args, "iterable")
    if first is None:
        return [Alt(UNKNOWN, ANY)]
    return ev.bind(ev.force(first), lambda value: [Alt(Iterating("enumerate", (value,), calling.call_key(args)), ANY)])


def _partial(ev: Evaluator, args: Arguments) -> list[Alt]:
    first = calling.positional(args, 0)
    if first is None:
        return [Alt(UNKNOWN, ANY)]
    rest = Arguments(args.positional[1:], args.keywords, args.spreads, args.call, args.point)
    return ev.bind(ev.force(first), lambda func: [Alt(Bound(func, rest, calling.call_key(args)), ANY)])


def _same(ev: Evaluator, args: Arguments) -> list[Alt]:
    first = calling.positional(args, 0)
    return ev.force(first) if first is not None else [Alt(UNKNOWN, ANY)]


def _cast(ev: Evaluator, args: Arguments) -> list[Alt]:
    second = calling.positional(args, 1)
    return ev.force(second) if second is not None else [Alt(UNKNOWN, ANY)]


def _getattr(ev: Evaluator, args: Arguments) -> list[Alt]:
    value, name = calling.positional(args, 0), calling.positional(args, 1)
    default = calling.positional(args, 2)
    if value is None or name is None or args.point is None or args.call is None or value.expr is None:
        return [Alt(UNKNOWN, ANY)]
    names = ev.force(name)
    if len(names) != 1 or not isinstance(names[0].value, Const) or not isinstance(names[0].value.value, str):
        return [Alt(Unknown(calling.call_key(args)), ANY)]
    attribute = forms.Attr(value.expr, names[0].value.value, args.call.at, args.call.at)
    from dlcheck.model import attributes

    alts = attributes.attribute(ev, attribute, args.point)
    if default is not None and all(isinstance(alt.value, (Unknown, External)) for alt in alts):
        return [Alt(Unknown(calling.call_key(args)), ANY)]
    return alts


def _vars(ev: Evaluator, args: Arguments) -> list[Alt]:
    """``vars(parser.parse_args())`` holds the options, by name as by attribute."""
    first = calling.positional(args, 0)
    if first is None:
        return [Alt(Mapping((), True), ANY)]
    return ev.bind(
        ev.force(first),
        lambda value: [Alt(value if settings.is_namespace(value) else Mapping((), True), ANY)],
    )


def _configuration(ev: Evaluator, args: Arguments) -> list[Alt]:
    """``OmegaConf.create({...})``: the dict, whose entries are attributes too."""
    first = calling.positional(args, 0)
    if first is None:
        return [Alt(calling.made("omegaconf.OmegaConf.create", args), ANY)]

    def step(value: Value) -> list[Alt]:
        return [Alt(value if isinstance(value, Mapping) else Unknown(calling.call_key(args)), ANY)]

    return ev.bind(ev.force(first), step)


def _map(ev: Evaluator, args: Arguments) -> list[Alt]:
    """``map(f, items)``: an iterable of what ``f`` makes of each element."""
    func, items = calling.positional(args, 0), calling.positional(args, 1)
    if func is None or items is None:
        return [Alt(UNKNOWN, ANY)]
    inside = elements(ev, ev.force(items), ("map", *calling.call_key(args)))
    argument = Thunk(None, None, tuple(inside))
    call_args = Arguments(((argument, False),), (), (), args.call, args.point)
    made = ev.bind(ev.force(func), lambda value: calling.call_function(ev, value, call_args))
    return [Alt(Many("list", (Thunk(None, None, tuple(made)),)), ANY)]


def _len(ev: Evaluator, args: Arguments) -> list[Alt]:
    first = calling.positional(args, 0)
    if first is not None:
        values = [alt.value for alt in ev.force(first)]
        if len(values) == 1 and isinstance(values[0], Many) and values[0].length is not None:
            return [Alt(Const(values[0].length), ANY)]
    return [Alt(Unknown(("len", *calling.call_key(args))), ANY)]


def _random_split(ev: Evaluator, args: Arguments) -> list[Alt]:
    """Two or more subsets of one dataset."""
    base = calling.made("torch.utils.data.random_split", args)
    lengths = calling.argument(args, "lengths", 1)
    count = 4
    if lengths is not None:
        many = next((alt.value for alt in ev.force(lengths) if isinstance(alt.value, Many)), None)
        count = len(many.items) if many is not None and not many.open else 4
    parts = (Made("torch.utils.data.Subset", args, (base.key, number)) for number in range(count))
    return [Alt(Many("list", tuple(map(calling.known, parts))), ANY)]


def _parsed_settings(ev: Evaluator, args: Arguments) -> list[Alt]:
    """``tyro.cli(Settings)``: an object of the class, its fields as they are declared unless the user gives others."""
    first = calling.positional(args, 0)
    key = calling.call_key(args)
    values = [alt.value for alt in ev.force(first)] if first is not None else []
    if len(values) != 1 or not isinstance(values[0], ClassRef):
        return [Alt(Unknown(key), ANY)]
    return list(calling.default_settings(values[0].scope, ("settings", *key), Unknown(key)))


def _environment(ev: Evaluator, args: Arguments) -> list[Alt]:
    """``os.getenv(name)``, ``os.environ.get(name)``."""
    first = calling.positional(args, 0)
    rank = local_rank([alt.value for alt in ev.force(first)], calling.call_key(args)) if first is not None else None
    return [Alt(calling.made("os.getenv", args) if rank is None else rank, ANY)]


_SPECIAL: dict[str, Callable[[Evaluator, Arguments], list[Alt]]] = {
    "builtins.dict": _dict,
    "collections.OrderedDict": _dict,
    "easydict.EasyDict": _dict,
    "munch.Munch": _dict,
    "munch.munchify": _dict,
    "box.Box": _dict,
    "addict.Dict": _dict,
    "omegaconf.OmegaConf.create": _configuration,
    "types.SimpleNamespace": _dict,
    "argparse.Namespace": _dict,
    "tyro.cli": _parsed_settings,
    "simple_parsing.parse": _parsed_settings,
    "os.getenv": _environment,
    "os.environ.get": _environment,
    "builtins.int": _number(int),
    "builtins.float": _number(float),
    "builtins.bool": _number(bool),
    "builtins.str": _text,
    "builtins.abs": _number(abs),
    "builtins.round": _number(round),
    "math.floor": _number(math.floor),
    "math.ceil": _number(math.ceil),
    "builtins.min": _extreme(min),
    "builtins.max": _extreme(max),
    "builtins.next": _next,
    "builtins.enumerate": _enumerate,
    "builtins.zip": _several("zip"),
    "itertools.zip_longest": _several("zip"),
    "itertools.chain": _several("chain"),
    "builtins.getattr": _getattr,
    "builtins.vars": _vars,
    "builtins.len": _len,
    "builtins.map": _map,
    "functools.partial": _partial,
    "copy.copy": _same,
    "copy.deepcopy": _same,
    "torch.autograd.Variable": _same,
    "torch.autograd.variable.Variable": _same,
    "typing.cast": _cast,
    "torch.utils.data.random_split": _random_split,
}
