"""Values that a program's user can set: command lines, dataclass fields, configuration nodes.

Each gives its default, in the world where nobody overrides it, beside an unknown for the world
where somebody does; for a flag both answers are known.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.scopes import Scope, Site, dotted, last_name
from dlcheck.model.values import Alt, Arguments, Const, Made, Origin, Point, Unknown, Value
from dlcheck.model.worlds import ANY, World

if TYPE_CHECKING:
    from dlcheck.facts.forms import Expr
    from dlcheck.model.evaluate import Evaluator

_PARSERS = ("ArgumentParser", "ArgParser", "HfArgumentParser", "ConfigArgParse")
# What people call the root of a configuration.
NODE_NAMES = frozenset({"_C", "__C", "C", "cfg", "config", "conf"})
_NODES = ("CfgNode", "CN", "ConfigNode", "OmegaConf", "ConfigDict")

# Names that people give to parsed options; only for these is an option looked up by its name alone.
_USUAL_NAMES = frozenset(
    {"args", "arg", "opt", "opts", "options", "option", "flags", "FLAGS", "params", "hparams", "hp", "cfg", "config",
     "conf", "configs", "params_", "namespace", "parsed_args", "cmd_args", "_args", "settings"}
)  # fmt: skip


def overridable(value: Value, key: Hashable, flag: bool = False) -> list[Alt]:
    """A default, and what it is when the user overrides it."""
    choice = ("free", key)
    own = Const(value.value, value.origin, key) if isinstance(value, Const) else value
    default = Alt(own, World({choice: "default"}))
    if flag and isinstance(value, Const) and isinstance(value.value, bool):
        other: Value = Const(not value.value, value.origin, chosen=True)
    else:
        other = Unknown(("other", key))
    return [default, Alt(other, World({choice: "other"}))]


# -- argparse


def is_namespace(value: Value) -> bool:
    """Whether it is what ``parse_args()`` gave."""
    return isinstance(value, Made) and (
        value.path.endswith(".parse_args") and any(f".{parser}()" in value.path for parser in _PARSERS)
    )


def namespace_attribute(ev: Evaluator, value: Made, name: str) -> list[Alt] | None:
    """``args.name`` of what ``parse_args()`` gave; None where it is something else."""
    path = value.path
    if any(f".{parser}().parse" in path or f".{parser}()" in path for parser in _PARSERS):
        if ".parse" not in path or path.endswith("()") or value.args is None or value.args.point is None:
            return None
        return option(ev, name, value.args.point)
    return None


def option(ev: Evaluator, name: str, point: Point) -> list[Alt] | None:
    """The command-line option whose value lands in ``args.name``, seen from where it is parsed."""
    sites = ev.project.options(name, point.module)
    nearest = _nearest(sites, point)
    declared = _set_defaults(ev, name, nearest)
    if declared is not None:
        return declared
    out: list[Alt] = []
    for number, site in enumerate(nearest[:4]):
        for value, world in _option_value(ev, site, name):
            both = world.assume(("option", name), number) if len(nearest) > 1 else world
            if both is not None:
                out.append(Alt(value, both))
    return out or None


def _set_defaults(ev: Evaluator, name: str, sites: list[Site]) -> list[Alt] | None:
    """``parser.set_defaults(name=value)`` beside the options prevails over their own defaults."""
    for site in sites:
        for other in site.module.calls_to("set_defaults"):
            call = other.expr
            if isinstance(call, forms.Call):
                value = next((arg.value for arg in call.args if arg.name == name), None)
                if isinstance(value, forms.Const):
                    origin = Origin(f"`set_defaults({name}={value.value!r})`", site.module, call.at)
                    key = ("option", site.module.name, name)
                    return overridable(Const(value.value, origin), key, flag=isinstance(value.value, bool))
    return None


def _nearest(sites: list[Site], point: Point) -> list[Site]:
    """The options declared in the same function, else in the same module, else anywhere."""
    same_scope = [site for site in sites if site.link.scope is point.link.scope]
    same_module = [site for site in sites if site.module is point.module]
    return same_scope or same_module or sites


def _option_value(ev: Evaluator, site: Site, name: str) -> list[Alt]:
    call = site.expr
    assert isinstance(call, forms.Call)
    given = {arg.name: arg.value for arg in call.args if arg.name}
    flags = (arg.value.value for arg in call.args if isinstance(arg.value, forms.Const) and arg.name is None)
    flag_name = next(flags, name)
    origin = Origin(f"default of `{flag_name}`", site.module, call.at)
    key = ("option", site.module.name, call.at)
    point = ev.project.point(site)
    action = given.get("action")
    action_name = action.value if isinstance(action, forms.Const) else last_name(action)
    if action_name in ("store_true", "store_false"):
        default = action_name == "store_false"
        explicit = given.get("default")
        if isinstance(explicit, forms.Const) and isinstance(explicit.value, bool):
            default = explicit.value
        return overridable(Const(default, origin), key, flag=True)
    if "default" not in given:
        if isinstance(given.get("required"), forms.Const) or not str(flag_name).startswith("-"):
            return [Alt(Unknown(("other", key)), ANY)]
        return overridable(Const(None, origin), key)
    out: list[Alt] = []
    for value, world in ev.eval(given["default"], point):
        out += _default_alts(value, world, origin, key, given, action_name == "BooleanOptionalAction")
    return out


def _default_alts(
    value: Value, world: World, origin: Origin, key: Hashable, given: dict[str, Expr], flag: bool
) -> list[Alt]:
    if isinstance(value, Const):
        value = Const(_typed(value.value, given.get("type")), origin)
    elif not calling.is_number(value):
        return [Alt(value, world)]
    out = []
    for alt in overridable(value, key, flag):
        both = world.merge(alt.world)
        if both is not None:
            out.append(Alt(alt.value, both))
    return out


def _typed(value: object, kind: Expr | None) -> object:
    """argparse applies ``type`` to a default that is a string."""
    convert = {"int": int, "float": float}.get(last_name(kind))
    if convert is not None and isinstance(value, str):
        try:
            return convert(value)
        except ValueError:
            return value
    return value


def option_name(call: forms.Call) -> str | None:
    """The attribute in which ``add_argument(...)`` leaves its value."""
    for arg in call.args:
        if arg.name == "dest" and isinstance(arg.value, forms.Const):
            return str(arg.value.value)
    names = [
        arg.value.value
        for arg in call.args
        if arg.name is None and isinstance(arg.value, forms.Const) and isinstance(arg.value.value, str)
    ]
    long = next((name for name in names if name.startswith("--")), names[0] if names else None)
    return long.lstrip("-").replace("-", "_") if long else None


# -- options known only by their name


def guessed_attribute(ev: Evaluator, expr: forms.Attr, point: Point) -> list[Alt] | None:
    """``args.workers`` or ``cfg.DATA.WORKERS`` where nobody knows what ``args`` is.

    Only for the usual names of such objects, and only where the project declares the option once,
    or each time alike.
    """
    chain = dotted(expr)
    if chain is None:
        return None
    parts = chain.split(".")
    if parts[0] in ("self", "cls"):
        parts = parts[1:]
    if len(parts) < 2 or parts[0] not in _USUAL_NAMES | {"_C"}:
        return None
    if len(parts) == 2:
        found = _agreed_option(ev, parts[1], point)
        if found is not None:
            return found
    return _node_value(ev, parts[1:])


def _agreed_option(ev: Evaluator, name: str, point: Point) -> list[Alt] | None:
    sites = ev.project.options(name, point.module)
    own = [site for site in sites if site.module is point.module]
    declared = _set_defaults(ev, name, own or sites)
    if declared is not None:
        return declared
    candidates = [_option_value(ev, site, name) for site in own or sites]
    if not candidates:
        return None
    first = [alt.value for alt in candidates[0] if isinstance(alt.value, Const)]
    for other in candidates[1:]:
        if [alt.value for alt in other if isinstance(alt.value, Const)] != first:
            return None
    return candidates[0]


def node_attribute(ev: Evaluator, path: str) -> list[Alt] | None:
    """An attribute chain on a configuration node that a library made, such as ``CfgNode().clone().DATA.WORKERS``."""
    root, _, chain = path.rpartition("().")
    if not chain or not any(f"{node}()" in f"{root}()" for node in _NODES):
        return None
    return _node_value(ev, chain.split("."))


def _node_value(ev: Evaluator, path: list[str]) -> list[Alt] | None:
    """``_C.DATA.WORKERS = 8`` of a configuration module (yacs and its like)."""
    suffix = "." + ".".join(path)
    everywhere = ev.project.config_stores(path)
    stores = [store for store in everywhere if (dotted(store.target) or "").endswith(suffix)]
    if not stores:  # set up inside of a function: the whole chain must fit
        local = ev.project.local_config_stores(path[-1])
        stores = [store for store in local if (dotted(store.target) or "").partition(".")[2] == suffix[1:]]
    values: list[tuple[Const, Origin]] = []
    for store in stores:
        if not isinstance(store.value, forms.Const):
            return None
        name = dotted(store.target) or ""
        origin = Origin(f"default of `{name}`", store.link.scope.module, store.value.at)
        values.append((Const(store.value.value), origin))
    if not values or any(value != values[0][0] for value, _ in values):
        return None
    value, origin = values[0]
    return overridable(Const(value.value, origin), ("node", *path), flag=isinstance(value.value, bool))


# -- click, typer, dataclasses


def command_parameter(ev: Evaluator, scope: Scope, name: str) -> list[Alt] | None:
    """The default of a click option that lands in parameter ``name``."""
    for decorator in scope.decorators():
        if not isinstance(decorator, forms.Call) or last_name(decorator.func) not in ("option", "argument"):
            continue
        if (_own_name(decorator) or option_name(decorator)) != name or scope.link is None:
            continue
        given = {arg.name: arg.value for arg in decorator.args if arg.name}
        key = ("option", scope.module.name, decorator.at)
        origin = Origin(f"default of `--{name.replace('_', '-')}`", scope.module, decorator.at)
        flag = isinstance(given.get("is_flag"), forms.Const)
        default = given.get("default")
        if default is None:
            return overridable(Const(False, origin), key, flag=True) if flag else [Alt(Unknown(("other", key)), ANY)]
        outer = ev.frame(scope.module.scope)
        out: list[Alt] = []
        for value, world in ev.eval(default, Point(outer, scope.link)):
            out += _default_alts(value, world, origin, key, given, flag)
        return out
    return None


def _own_name(decorator: forms.Call) -> str | None:
    """The name of its own that ``@click.option("-j", "--jobs", "workers")`` gives its parameter."""
    texts = [arg.value.value for arg in decorator.args if arg.name is None and isinstance(arg.value, forms.Const)]
    return next((text for text in texts if isinstance(text, str) and text.isidentifier()), None)


_FIELDS = frozenset(
    {"dataclasses.field", "pydantic.Field", "pydantic.fields.Field", "typer.Option", "typer.Argument", "attr.ib",
     "attrs.field"}
)  # fmt: skip


def declared_default(ev: Evaluator, value: Value) -> list[Alt] | None:
    """The default inside ``field(default=4)``, ``typer.Option(4)``."""
    if not isinstance(value, Made) or value.path not in _FIELDS or value.args is None:
        return None
    factory = calling.keyword(value.args, "default_factory") or calling.keyword(value.args, "factory")
    if factory is not None:
        nothing = Arguments((), (), (), value.args.call, value.args.point)
        return ev.bind(ev.force(factory), lambda made: calling.call_function(ev, made, nothing))
    number = None if value.path == "dataclasses.field" else 0
    thunk = calling.argument(value.args, "default", number)
    if thunk is None:
        return [Alt(Unknown(("field", value.key)), ANY)]
    return ev.force(thunk)


def as_field_default(ev: Evaluator, alt: Alt, cls: Scope, name: str) -> Alt:
    """A class attribute as the default it is: of a dataclass, the user can give another."""
    inner = declared_default(ev, alt.value)
    value = inner[0].value if inner and len(inner) == 1 else alt.value
    if isinstance(value, Const) and value.origin is None and cls.link is not None:
        origin = Origin(f"`{cls.name}.{name}`", cls.module, cls.link.stmt.at)
        return Alt(Const(value.value, origin, value.free), alt.world)
    return Alt(value, alt.world)
