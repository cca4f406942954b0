"""Work of the host in a training loop that the loader's workers could do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import library
from dlcheck.model.flow import links_in, links_of
from dlcheck.model.loops import BatchLoop, called_scopes
from dlcheck.model.scopes import Link, Module, Scope, Site, descend, last_name, target_names
from dlcheck.model.values import External, Made

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlcheck.facts.forms import Expr

# Libraries that work on the CPU.
_HEAVY = ("cv2.", "librosa.", "albumentations.", "skimage.", "imgaug.", "scipy.signal.", "scipy.ndimage.", "soundfile.",
          "pydub.", "PIL.Image.", "PIL.ImageOps.", "spacy.", "nltk.")  # fmt: skip

# What of these libraries is no work: constants, constructors, settings, and what shows a picture.
_LIGHT = frozenset(
    {"setNumThreads", "imshow", "waitKey", "imwrite", "fromarray", "namedWindow", "destroyAllWindows", "new",
     "rectangle", "putText", "circle", "line", "setUseOptimized", "VideoWriter", "save"}
)  # fmt: skip

_TOKENIZING = frozenset({"encode", "encode_plus", "batch_encode_plus", "tokenize", "__call__"})
_TOKENIZER_OPTIONS = frozenset({"padding", "truncation", "return_tensors", "max_length", "add_special_tokens"})

# Functions that pass the parts of a batch on as they are.
_PASSING = frozenset({"list", "tuple", "zip", "enumerate", "sorted", "reversed", "map", "dict", "str"})
_PASSING_METHODS = frozenset(
    {"numpy", "cpu", "tolist", "items", "values", "get", "pop", "detach", "permute", "transpose", "astype", "copy",
     "float"}
)  # fmt: skip


class HostWork(NamedTuple):
    """A call in a training loop that works on the batch on the host: ``what`` names the function."""

    module: Module
    link: Link
    at: int
    what: str


def host_work(loop: BatchLoop) -> Iterator[HostWork]:
    """The work that every round of a training loop does on what the loader gave."""
    stmt = loop.link.stmt
    if not isinstance(stmt, forms.For) or loop.inner is not None or not loop.trains():
        return
    links = [link for inner in loop.link.blocks["body"] for link in (inner, *links_in(inner))]
    batch = set(target_names(stmt.target))
    if isinstance(stmt.iter, forms.Call) and last_name(stmt.iter.func) == "enumerate":
        batch -= _counter(stmt.target)
    yield from _work(loop, links, batch, loop.link, 0)


def _counter(target: Expr) -> set[str]:
    return set(target_names(target.items[0])) if isinstance(target, forms.Sequence) and target.items else set()


def _work(loop: BatchLoop, links: list[Link], batch: set[str], around: Link | None, depth: int) -> Iterator[HostWork]:
    for link in links:
        if _is_guarded(link, around):
            continue
        for site in link.scope.module.calls_in(link):
            if site.link is link:
                yield from _work_at(loop, site, _with_clauses(site, batch), depth)
        _pass_on(link, batch)


def _is_guarded(link: Link, around: Link | None) -> bool:
    for outer in link.outer():
        if outer is around:
            return False
        if isinstance(outer.stmt, (forms.If, forms.While, forms.Match)):
            return True
    return link.slot.startswith("handler")


def _with_clauses(site: Site, batch: set[str]) -> set[str]:
    """The names of the batch, and those that a comprehension around a call gives to its parts."""
    names = set(batch)
    inner = site.inner
    while inner is not None:
        if isinstance(inner.form, forms.Comp):
            for clause in inner.form.clauses:
                if _is_of_batch(clause.iter, names):
                    names |= set(target_names(clause.target))
        inner = inner.parent
    return names


def _work_at(loop: BatchLoop, site: Site, batch: set[str], depth: int) -> Iterator[HostWork]:
    call = site.expr
    assert isinstance(call, forms.Call)
    if not any(_is_of_batch(arg.value, batch) for arg in call.args):
        return
    what = _what(loop, site)
    if what:
        yield HostWork(site.module, site.link, call.at, what)
        return
    scopes = list(called_scopes(loop.project, site))
    if len(scopes) == 1 and depth < 2 and not scopes[0].function.is_generator:
        inside = list(_work(loop, list(links_of(scopes[0])), _given(scopes[0], call, batch), None, depth + 1))
        if inside:  # the loop's own call is what would move
            yield HostWork(site.module, site.link, call.at, inside[0].what)


def _given(scope: Scope, call: forms.Call, batch: set[str]) -> set[str]:
    params = [param.name for param in scope.function.params]
    number = 1 if scope.owner is not None and not scope.has_decorator("staticmethod") else 0
    names: set[str] = set()
    for arg in call.args:
        if arg.name is not None:
            names |= {arg.name} if _is_of_batch(arg.value, batch) else set()
            continue
        if number < len(params) and _is_of_batch(arg.value, batch):
            names.add(params[number])
        number += 1
    return names


def _what(loop: BatchLoop, site: Site) -> str:
    """The function that works on the host, by the name that the code gives it; "" for any other."""
    call = site.expr
    assert isinstance(call, forms.Call)
    name = last_name(call.func)
    text = site.module.line(call.func.at)
    for value in loop.project.evaluator.values(call.func, loop.project.point(site)):
        if isinstance(value, External):
            path = library.canonical(value.path)
            if path.startswith(_HEAVY) and name not in _LIGHT and name[:1].islower():
                return text
            if path in library.DECODERS and path != "torch.load":
                return text
            if path.startswith("transformers.") and ".from_pretrained()" in path and name in _TOKENIZING:
                return text
        elif isinstance(value, Made) and _is_worker(value.path):
            return text
    if "tokenizer" in name.lower() and any(arg.name in _TOKENIZER_OPTIONS for arg in call.args):
        return text
    return ""


def _is_worker(path: str) -> bool:
    """Whether calling what ``path`` made is work: a pipeline of augmentations, a tokenizer."""
    return path.startswith(("albumentations.", "imgaug.")) or path.startswith("transformers.") and "Tokenizer" in path


def _pass_on(link: Link, batch: set[str]) -> None:
    """Add the names that a statement gives to parts of the batch; take away those that it gives to something else."""
    stmt = link.stmt
    pairs: Iterable[tuple[Expr, Expr]] = ()
    if isinstance(stmt, forms.Assign):
        pairs = [(target, stmt.value) for target in stmt.targets]
    elif isinstance(stmt, forms.For):
        pairs = [(stmt.target, stmt.iter)]
    for target, value in pairs:
        names = {name for name in target_names(target) if "." not in name and not isinstance(target, forms.Sub)}
        if _is_of_batch(value, batch):
            batch |= names
        else:
            batch -= names


def _is_of_batch(expr: Expr, batch: set[str]) -> bool:
    """Whether an expression is the batch, a part of it, or its parts as they are."""
    if isinstance(expr, forms.Name):
        return expr.id in batch
    if isinstance(expr, (forms.Attr, forms.Sub, forms.Star)):
        return _is_of_batch(expr.value, batch)
    if isinstance(expr, forms.Sequence):
        return any(_is_of_batch(item, batch) for item in expr.items)
    if isinstance(expr, forms.Comp):
        names = set(batch)
        for clause in expr.clauses:
            if _is_of_batch(clause.iter, names):
                names |= set(target_names(clause.target))
        return any(isinstance(inner, forms.Name) and inner.id in names - batch for inner in descend(expr.value))
    if isinstance(expr, forms.Call):
        if isinstance(expr.func, forms.Attr) and expr.func.name in _PASSING_METHODS:
            return _is_of_batch(expr.func.value, batch)
        return last_name(expr.func) in _PASSING and any(_is_of_batch(arg.value, batch) for arg in expr.args)
    if isinstance(expr, forms.FString):
        return any(_is_of_batch(part, batch) for part in expr.parts)
    return False
