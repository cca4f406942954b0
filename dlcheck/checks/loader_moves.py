"""Fixes that build a loader, or its iterator, once: above the loop that does so again and again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dlcheck import edits
from dlcheck.checks import moving
from dlcheck.checks.loader_rounds import gives_the_same
from dlcheck.checks.mending import indentation
from dlcheck.checks.name_uses import is_read_before
from dlcheck.checks.report import make_fix
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Applicability, Edit, Fix
from dlcheck.model.flow import is_inside, links_in
from dlcheck.model.loaders import Loader
from dlcheck.model.loops import NextCall
from dlcheck.model.processes.cycling import CycledLoader
from dlcheck.model.project import Project
from dlcheck.model.scopes import Link, Module, Scope, Site, dotted, last_name, target_names
from dlcheck.model.values import LoaderRef


def build_once(loader: Loader, loop: Link) -> Fix | Refused:
    """The loader above the loop that builds it anew in each round."""
    link, module = loader.link, loader.module
    if link.scope is not loop.scope or not is_inside(link, loop):
        return Refused("it is built by a function that the loop calls")
    if link.parent is not loop:
        return Refused("it is built in a block inside the loop")
    words = "Build the loader above the loop"
    stmt = link.stmt
    if isinstance(stmt, forms.Assign) and stmt.value is loader.call:
        names = [name for target in stmt.targets for name in target_names(target)]
        if any(names_changed(loop, link, names)) or any("." in name for name in names):
            return Refused("the loop gives its name other values, too")
        if is_read_before([link], loop):
            return Refused("a round uses the loader of the round before")
        kind: Applicability = "safe" if gives_the_same(loader, loop, names) else "unsafe"
        return make_fix(kind, words, moving.hoist(module.source, module.facts, [link], loop))
    if isinstance(stmt, forms.For):
        kind = "safe" if stmt.iter is loader.call and gives_the_same(loader, loop, ()) else "unsafe"
        return make_fix(kind, words, named_above(module, loop, loader.call, "loader"))
    return Refused("it is part of a larger statement")


def names_changed(loop: Link, link: Link, names: Iterable[str]) -> Iterator[str]:
    """The names that a loop gives other values than one of its statements does."""
    others = {name for other in links_in(loop) if other is not link and not other.blocks for name in other.changes}
    others |= {name for other in (loop, *links_in(loop)) if isinstance(other.stmt, forms.For)
               for name in target_names(other.stmt.target)}  # fmt: skip
    yield from (name for name in names if name in others)


def free_name(module: Module, scope: Scope, name: str) -> bool:
    """Whether nothing else has a name, in a function or in its module."""
    params = {param.name for param in scope.function.params}
    return name not in scope.names | params | module.scope.names


def named_above(module: Module, loop: Link, expr: forms.Expr, name: str) -> list[Edit | Refused]:
    """An expression of a loop computed once, above it, under a name."""
    source, facts, text = module.source, module.facts, module.source.text
    if not free_name(module, loop.scope, name):
        return [Refused(f"`{name}` is something else here")]
    start, end = facts.span(expr.at)
    old, new = indentation(text, start), indentation(text, facts.span(loop.stmt.at)[0])
    piece = moving.reindented(f"{old}{name} = {text[start:end]}\n", old, new)
    if isinstance(piece, Refused):
        return [piece]
    lines = [line.removeprefix(new) for line in piece.rstrip("\n").split("\n")]
    return [moving.insert_above(source, facts, loop, lines), edits.replace(source, facts, expr.at, name)]


# -- without end

FOREVER = ("def forever(loader):", "    while True:", "        yield from loader")


def start_anew(cycled: CycledLoader, endless: bool) -> Fix | Refused:
    """``forever(loader)``, which starts a new pass, for ``cycle(loader)``; a loader without end needs neither."""
    module, call, link = cycled.site.module, cycled.call, cycled.site.link
    if len(call.args) != 1 or not _can_be_iterated_again(cycled.project, call.args[0].value, cycled.site):
        return Refused("what is cycled can be iterated only once")
    imports = moving.unused_import(module, call.func)
    if endless:
        text = module.source.text[slice(*module.facts.span(call.args[0].value.at))]
        looped = isinstance(link.stmt, forms.For) and link.stmt.iter is call
        text = text if looped else f"iter({text})"
        return make_fix(
            "unsafe", f"Write `{text}`", [edits.replace(module.source, module.facts, call.at, text), *imports]
        )
    added = moving.add_function(module, "forever", _indented(module, FOREVER), link)
    named = edits.replace(module.source, module.facts, call.func.at, "forever")
    return make_fix("unsafe", "Start a new pass instead", [named, *added, *imports])


def _indented(module: Module, lines: Iterable[str]) -> list[str]:
    """Lines that are indented by four blanks a level, as the module indents its blocks."""
    unit = moving.unit(module)
    return [unit * ((len(line) - len(line.lstrip())) // 4) + line.lstrip() for line in lines]


def _can_be_iterated_again(project: Project, expr: forms.Expr, site: Site) -> bool:
    """Whether an expression is a loader, or a progress bar around one."""
    if isinstance(expr, forms.Call) and last_name(expr.func) in ("tqdm", "track") and expr.args:
        return _can_be_iterated_again(project, expr.args[0].value, site)
    values = list(project.evaluator.values(expr, project.point(Site(expr, site.link, site.inner))))
    return bool(values) and all(isinstance(value, LoaderRef) for value in values)


def draw_on(call: NextCall) -> Fix | Refused:
    """One iterator without end above the loop, in the place of a new one for each batch."""
    site, project = call.site, call.project
    module, expr = site.module, site.expr
    if call.by_loop or not isinstance(expr, forms.Call):
        return Refused("it is a loop that draws the batch")
    method = isinstance(expr.func, forms.Attr)
    iterated = expr.func.value if isinstance(expr.func, forms.Attr) else expr.args[0].value
    if not isinstance(iterated, forms.Call) or method is False and len(expr.args) != 1:
        return Refused("the iterator has a name")
    named = iterated.func.value if isinstance(iterated.func, forms.Attr) else iterated.args[0].value
    name = dotted(named)
    around = [link for link in call.repeated_by() if link.scope is site.link.scope]
    if not around:
        return Refused("the loop is in another function")
    loop = around[-1]
    if name is None or site.inner is not None or {name, name.partition(".")[0]} & loop.changes - {"self"}:
        return Refused("the loader is another one in each round")
    loader = project.loader_of(call.ref)
    others = any(is_inside(other.link, loop) for other in loader.loops)
    if others and not all(option.falsy for option in loader.option("persistent_workers")):
        return Refused("its workers persist: a second iterator would start the first anew")
    new = next((one for one in ("batches", f"{last_name(named)}_batches") if free_name(module, loop.scope, one)), "")
    if not new:
        return Refused("`batches` is something else here")
    source, facts = module.source, module.facts
    drawn = edits.replace(source, facts, expr.at if method else iterated.at, f"next({new})" if method else new)
    above = moving.insert_above(source, facts, loop, [f"{new} = forever({name})"])
    added = moving.add_function(module, "forever", _indented(module, FOREVER), site.link)
    return make_fix("unsafe", "Draw from one iterator, made above the loop", [above, drawn, *added])
