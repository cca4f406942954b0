"""What an attribute is: of an object, of a parsed command line, of a configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import calling, hyperparameters, library, settings
from dlcheck.model.iteration import part_of, unknown_part
from dlcheck.model.scopes import Scope, Store, dotted
from dlcheck.model.values import (
    UNDEFINED,
    UNKNOWN,
    Alt,
    Batch,
    ClassRef,
    Const,
    External,
    Frame,
    Func,
    Instance,
    LoaderRef,
    Made,
    Managed,
    Mapping,
    ModuleRef,
    Moved,
    Pinned,
    Point,
    SuperOf,
    Thunk,
    Undefined,
    Unknown,
    Value,
)
from dlcheck.model.worlds import ANY, World

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator

MAX_STORES = 8


def attribute(ev: Evaluator, expr: forms.Attr, point: Point) -> list[Alt]:
    """``value.name`` at a point: as last set here, else as its object has it."""
    name = dotted(expr)
    if name is not None and point.frame.scope.kind != "class":
        alts = ev.before(point.link.block, point.link.index, name, point.frame)
        if not all(isinstance(alt.value, Undefined) for alt in alts):
            if _set_by_own_method(ev, expr, point):
                return ev.unknown_at(expr, point)
            if not any(isinstance(alt.value, Undefined) for alt in alts):
                return alts
            return ev.where_unset(alts, attribute_value(ev, expr, point))
    return attribute_value(ev, expr, point)


def _set_by_own_method(ev: Evaluator, expr: forms.Attr, point: Point) -> bool:
    """Whether the object's own method, called earlier in this function, sets ``self.name`` as well."""
    scope = point.link.scope
    owner, value = scope.owner, expr.value
    if owner is None or not isinstance(value, forms.Name) or not scope.function.params:
        return False
    if value.id != scope.function.params[0].name:
        return False
    setters = {store.link.scope for store in ev.project.stores(owner, expr.name)} - {scope}
    return any(
        isinstance(site.expr, forms.Call)
        and isinstance(site.expr.func, forms.Attr)
        and dotted(site.expr.func) == f"{value.id}.{site.expr.func.name}"
        and site.expr.at < expr.at
        and ev.project.method(owner, site.expr.func.name) in setters
        for site in (scope.module.calls_by_scope.get(scope, ()) if setters else ())
    )


def attribute_value(ev: Evaluator, expr: forms.Attr, point: Point) -> list[Alt]:
    """``value.name`` as the object itself has it, or as the caller had set it."""
    known = _set_by_caller(ev, expr, point) or _set_on_global(ev, expr, point)
    if known is not None:
        return known
    return ev.bind(ev.eval(expr.value, point), lambda value: get(ev, value, expr.name, expr, point))


def _set_by_caller(ev: Evaluator, expr: forms.Attr, point: Point) -> list[Alt] | None:
    """Where the object is a parameter: what the caller had set on its own name for it."""
    base = expr.value
    frame = point.frame
    if not isinstance(base, forms.Name) or frame.scope.kind != "function" or base.id in frame.scope.not_local:
        return None
    if base.id == "self" or not any(param.name == base.id for param in frame.scope.function.params):
        return None
    if any(base.id in link.changes and ev.rebinds(link, base.id) for link in frame.scope.body):
        return None
    key = ("attr of parameter", frame, base.id, expr.name)

    def compute() -> list[Alt]:
        out: list[Alt] = []
        for thunk, world in calling.parameter_thunks(ev, base.id, frame):
            for value, other in _attr_of_thunk(ev, thunk, expr.name, expr, point):
                both = world.merge(other)
                if both is not None:
                    out.append(Alt(value, both))
        return out or [Alt(UNDEFINED, ANY)]

    alts = ev.remember(key, compute)
    if any(isinstance(alt.value, Undefined) for alt in alts):
        return None
    return alts


def _set_on_global(ev: Evaluator, expr: forms.Attr, point: Point) -> list[Alt] | None:
    """``args.cuda`` in a function, where the module itself, and it alone, has ``args.cuda = ...``."""
    base, scope, module = expr.value, point.frame.scope, point.module
    if not isinstance(base, forms.Name) or scope.kind != "function":
        return None
    enclosing: Scope | None = scope
    while enclosing is not None and enclosing.kind != "module":
        if base.id in enclosing.names and base.id not in enclosing.not_local:
            return None
        enclosing = enclosing.parent
    name = f"{base.id}.{expr.name}"
    stores = [store for store in module.stores if dotted(store.target) == name]
    if not stores or any(store.link.scope.kind != "module" for store in stores):
        return None
    top = ev.frame(module.scope)
    body = module.scope.body
    alts = ev.remember(("end", top, name), lambda: ev.before(body, len(body), name, top))
    return None if any(isinstance(alt.value, Undefined) for alt in alts) else alts


def _attr_of_thunk(ev: Evaluator, thunk: Thunk, name: str, expr: forms.Attr, point: Point) -> list[Alt]:
    if isinstance(thunk.expr, (forms.Name, forms.Attr)) and thunk.point is not None:
        there = thunk.point
        chain = dotted(thunk.expr)
        if chain is not None:
            alts = ev.before(there.link.block, there.link.index, f"{chain}.{name}", there.frame)
            if not all(isinstance(alt.value, Undefined) for alt in alts):
                synthetic = forms.Attr(thunk.expr, name, -1, -1)
                return ev.bind(
                    alts,
                    lambda value: (
                        attribute_value(ev, synthetic, there) if isinstance(value, Undefined) else [Alt(value, ANY)]
                    ),
                )
            return attribute_value(ev, forms.Attr(thunk.expr, name, -1, -1), there)
    return ev.bind(ev.force(thunk), lambda value: get(ev, value, name, expr, point))


def get(ev: Evaluator, value: Value, name: str, expr: forms.Attr, point: Point) -> list[Alt]:
    """Attribute ``name`` of a value; ``expr`` and ``point`` say where it is asked for."""
    if isinstance(value, ModuleRef):
        return ev.project.imports.module_attribute(value.module, name)
    if isinstance(value, External):
        node = settings.node_attribute(ev, f"{value.path}.{name}")
        if node is not None:
            return node
        return [Alt(External(library.canonical(f"{value.path}.{name}"), value.of), ANY)]
    if isinstance(value, Instance):
        return instance_attribute(ev, value, name, expr, point)
    if isinstance(value, ClassRef):
        return class_attribute(ev, value.scope, name, None, expr, point)
    if isinstance(value, SuperOf):
        return _super_attribute(ev, value, name)
    if isinstance(value, Made):
        if value.path == "torch.device" and name == "type" and value.args is not None:
            return _device_type(ev, value, expr, point)
        if value.path == "torch.accelerator.current_accelerator" and name == "type":
            # Where CUDA is not there it may be another's: none of them is CUDA's.
            kinds = (("cuda", True), ("mps", False))
            return [Alt(Const(kind), World({("symbol", "cuda"): there})) for kind, there in kinds]
        found = settings.namespace_attribute(ev, value, name)
        if found is None:
            found = settings.node_attribute(ev, f"{value.path}().{name}")
        if found is not None:
            return found
        return [Alt(External(f"{value.path}().{name}", value), ANY)]
    if isinstance(value, LoaderRef):
        return _loader_attribute(ev, value, name, expr, point)
    if isinstance(value, Managed):
        return get(ev, value.value, name, expr, point)
    if isinstance(value, Mapping):
        thunk = value.get(name)
        if thunk is not None:
            return ev.force(thunk)
        return ev.unknown_at(expr, point)
    if isinstance(value, Batch):
        return [Alt(part_of(value), ANY)]
    if isinstance(value, (Moved, Pinned)):
        return [Alt(value, ANY)]
    if isinstance(value, Unknown):
        found = settings.guessed_attribute(ev, expr, point)
        if found is not None:
            return found
        return [Alt(unknown_part(value, name), ANY)]
    return ev.unknown_at(expr, point)


def _device_type(ev: Evaluator, device: Made, expr: forms.Attr, point: Point) -> list[Alt]:
    """``device.type``: "cuda" or "cpu", as the device is."""
    from dlcheck.model.transfers import device_kinds

    out: list[Alt] = []
    for kind, world in device_kinds(ev, calling.known(device)):
        known = kind in ("cuda", "cpu", "mps")
        out.append(Alt(Const(kind) if known else ev.unknown_at(expr, point)[0].value, world))
    return out


def _loader_attribute(ev: Evaluator, loader: LoaderRef, name: str, expr: forms.Attr, point: Point) -> list[Alt]:
    if isinstance(loader.maker, Scope):
        own = Instance(loader.maker, loader.args, loader.key, loader.point)
        alts = instance_attribute(ev, own, name, expr, point)
        if not all(isinstance(alt.value, Unknown) for alt in alts):
            return alts
    if name in ("dataset", "sampler", "batch_sampler", "collate_fn", "generator"):
        from dlcheck.model.loaders import option_alts

        return [Alt(value, world) for value, world in option_alts(ev, loader, name)]
    return [Alt(Unknown((loader.key, name)), ANY)]


# -- objects of project classes


def instance_attribute(ev: Evaluator, instance: Instance, name: str, expr: forms.Attr, point: Point) -> list[Alt]:
    """Attribute of an object of a project class: a method, a property, or what its methods assign."""
    project = ev.project
    method = project.method(instance.cls, name)
    if method is not None:
        return _method(ev, method, instance)
    key = ("instance", instance.cls, instance.key, name)

    def compute() -> list[Alt]:
        stores = project.stores(instance.cls, name)
        if stores:
            return _stored(ev, instance, name, stores)
        init = project.method(instance.cls, "__init__") if name == hyperparameters.ATTRIBUTE else None
        kept = hyperparameters.saved(ev, init, frame_of_method(ev, instance, init)) if init is not None else None
        if kept is not None:
            return kept
        return class_attribute(ev, instance.cls, name, instance, expr, point)

    return ev.remember(key, compute)


def _method(ev: Evaluator, method: Scope, instance: Instance) -> list[Alt]:
    if method.has_decorator("property", "cached_property", "lazy_property"):
        return calling.returned(ev, ev.frame(method, self_=instance))
    if method.has_decorator("staticmethod"):
        return [Alt(Func(method), ANY)]
    if method.has_decorator("classmethod"):
        return [Alt(Func(method, ClassRef(instance.cls)), ANY)]
    return [Alt(Func(method, instance), ANY)]


def _stored(ev: Evaluator, instance: Instance, name: str, stores: list[Store]) -> list[Alt]:
    """The alternatives of ``self.name = ...`` in all methods; what ``__init__`` sets only as a
    placeholder gives way to the others."""
    alts: list[Alt] = []
    lasting = _last_of_each_method(stores)
    for number, store in enumerate(lasting[:MAX_STORES]):
        link = store.link
        frame = frame_of_method(ev, instance, link.scope)
        point = Point(frame, link)
        if store.value is None:
            found = ev.after(link, dotted(store.target) or "", frame)
        else:
            end = link.scope.body
            found = ev.before(end, len(end), dotted(store.target) or "", frame)
            found = [alt for alt in found if not isinstance(alt.value, Undefined)] or ev.eval(store.value, point)
        for value, world in found:
            key = ("stored", instance.cls, name)
            both = world.assume(key, number) if len(lasting) > 1 else world
            if both is not None:
                alts.append(Alt(value, both))
    solid = [alt for alt in alts if not (isinstance(alt.value, Const) and alt.value.value is None)]
    return solid or alts or [Alt(UNKNOWN, ANY)]


def _last_of_each_method(stores: list[Store]) -> list[Store]:
    """One store for each method: reaching definitions within a method find the rest."""
    last: dict[int, Store] = {}
    for store in stores:
        last[id(store.link.scope)] = store
    return list(last.values())


def frame_of_method(ev: Evaluator, instance: Instance, method: Scope) -> Frame:
    """The frame of a method on this object; its constructor has the arguments of its creation."""
    if method.name == "__init__" and instance.args is not None and instance.point is not None:
        if ev.project.method(instance.cls, "__init__") is method:
            return ev.frame(method, instance.args, instance.point, instance)
        return calling.super_init_frame(ev, instance, method)
    return ev.frame(method, self_=instance)


def class_attribute(
    ev: Evaluator, cls: Scope, name: str, instance: Instance | None, expr: forms.Attr, point: Point
) -> list[Alt]:
    """An attribute from the class body (of a dataclass: the field's value), or of a base."""
    for base in ev.project.lineage(cls):
        if name in base.functions:
            if instance is not None:
                return _method(ev, base.functions[name], instance)
            method = base.functions[name]
            return [Alt(Func(method, ClassRef(cls)) if method.has_decorator("classmethod") else Func(method), ANY)]
        if name in base.classes:
            return [Alt(ClassRef(base.classes[name]), ANY)]
        if name in base.names:
            if instance is not None and instance.args is not None:
                given = calling.field_argument(ev, base, name, instance)
                if given is not None:
                    return given
            frame = ev.frame(base)
            alts = ev.before(base.body, len(base.body), name, frame)
            if not all(isinstance(alt.value, Undefined) for alt in alts):
                return [settings.as_field_default(ev, alt, base, name) for alt in alts]
    inherited = _inherited_function(ev, cls, name)
    if inherited is not None:
        return [Alt(inherited, ANY)]
    return [Alt(Unknown(("attribute", cls, instance.key if instance else None, name)), ANY)]


def _inherited_function(ev: Evaluator, cls: Scope, name: str) -> External | None:
    """A function that the library's base keeps, unless the class hands another one to its constructor."""
    for base in ev.project.external_bases(cls):
        path = library.INHERITED_FUNCTIONS.get((base, name))
        if path is not None:
            inits = [scope.functions["__init__"] for scope in ev.project.lineage(cls) if "__init__" in scope.functions]
            calls = [site.expr for init in inits for site in init.module.calls_by_scope.get(init, ())]
            given = any(isinstance(call, forms.Call) and any(arg.name == name for arg in call.args) for call in calls)
            return None if given else External(path)
    return None


def _super_attribute(ev: Evaluator, value: SuperOf, name: str) -> list[Alt]:
    for base in ev.project.lineage(value.cls)[1:]:
        if name in base.functions:
            return [Alt(Func(base.functions[name], value.self_), ANY)]
    externals = ev.project.external_bases(value.cls)
    return [Alt(External(f"{externals[0]}.{name}" if externals else f"super.{name}"), ANY)]
