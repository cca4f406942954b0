"""Does an iterable dataset share its samples out among the workers?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import library
from dlcheck.model.data.samples import WORKER_WORDS
from dlcheck.model.flow import links_in, links_of, loops_around
from dlcheck.model.scopes import (
    Link,
    Scope,
    Site,
    descend,
    expressions,
    last_name,
    loops_for_ever,
    target_names,
)
from dlcheck.model.values import Instance, Made, Point
from dlcheck.model.workers import statements

if TYPE_CHECKING:
    from dlcheck.model.datasets import DatasetClass
    from dlcheck.model.loaders import Loader

# Whoever names one of these knows of workers or ranks.
_WORDS = WORKER_WORDS | frozenset(
    {"worker_id", "num_workers", "split_by_worker", "split_by_node", "sharding_filter", "get_rank",
     "get_world_size", "world_size", "num_replicas", "num_shards", "shard_id", "rank", "local_rank", "worker_rank",
     "split_dataset_by_node", "_worker_id", "num_dataloader_workers", "global_worker_id"}
)  # fmt: skip

ALLOWED_BASES = frozenset({library.ITERABLE_DATASET, "typing.Generic", "builtins.object", "abc.ABC"})

MAX_ALIKE = 3  # streams of one class, each of which takes from the next

_RANDOM_ROOTS = ("random.", "numpy.random.", "torch.rand", "torch.randint", "torch.randn", "torch.normal")


def shares_out(loader: Loader, dataset: DatasetClass) -> bool:
    """Whether each worker gets its own part, or nobody can tell: then there is nothing to report."""
    if any(base not in ALLOWED_BASES for base in dataset.bases):
        return True
    if loader.worker_init_may_touch_dataset():
        return True
    if dataset.worker_code.mentions(_WORDS) or _class_mentions(dataset):
        return True
    return delegates(dataset) or _draws(dataset)


def _class_mentions(dataset: DatasetClass) -> bool:
    """Any method: ``__init__`` may have split the list of files by rank."""
    for cls in dataset.project.lineage(dataset.cls):
        for method in cls.functions.values():
            for stmt in statements(method):
                for root in expressions(stmt):
                    for expr in descend(root):
                        if isinstance(expr, (forms.Name, forms.Attr)) and last_name(expr) in _WORDS:
                            return True
            if any(param.name in _WORDS for param in method.function.params):
                return True
    return False


# Of what is called like this, the parts may be anybody's.
_STREAMS = ("dataset", "loader", "stream", "pipe", "source", "iterable", "buffer", "queue")
_SHORT_STREAMS = frozenset({"ds", "src", "inner", "base", "wrapped", "upstream", "it"})
_STREAMING_LIBRARIES = ("datasets.", "webdataset.", "streaming.")


def delegates(dataset: DatasetClass, above: tuple[Scope, ...] = ()) -> bool:
    """Whether samples come from another stream that shares them out, or of which nothing is known.

    ``above``: the classes of the streams that take from this one.
    """
    project = dataset.project
    method = project.method(dataset.cls, "__iter__")
    if method is None:
        return True
    frame = project.evaluator.frame(method, self_=dataset.instance)
    for link in method.module.loops:
        if link.scope is not method or not isinstance(link.stmt, forms.For):
            continue
        iterated = _iterated(link.stmt.iter)
        name = last_name(iterated).lower()
        values = list(project.evaluator.values(iterated, Point(frame, link)))
        if any(word in name for word in _STREAMS) or name in _SHORT_STREAMS:
            if not all(isinstance(value, Instance) for value in values):
                return True
            for value in values:
                assert isinstance(value, Instance)
                inner = project.dataset_class(value)
                if inner.worker_code.mentions(_WORDS) or _class_mentions(inner):
                    return True
                if above.count(inner.cls) < MAX_ALIKE and delegates(inner, (*above, inner.cls)):
                    return True
        if any(isinstance(value, Made) and value.path.startswith(_STREAMING_LIBRARIES) for value in values):
            return True
    return False


def _iterated(expr: forms.Expr) -> forms.Expr:
    """``x`` of ``enumerate(x)``, ``iter(x)``, ``tqdm(x)``."""
    while isinstance(expr, forms.Call) and expr.args and isinstance(expr.func, forms.Name):
        expr = expr.args[0].value
    return expr


def _draws(dataset: DatasetClass) -> bool:
    """A generator of random samples, endless or of so many rounds: what workers draw differs, if their seeds do."""
    method = dataset.project.method(dataset.cls, "__iter__")
    assert method is not None
    if loops_for_ever(method):
        return _uses_chance(dataset)
    picks = (
        call.site
        for call in dataset.worker_code.calls
        if call.point.frame.scope is method and call.path.startswith(_RANDOM_ROOTS)
    )
    return any(_picks(site) for site in picks if (loop := next(loops_around(site.link), None)) and _only_counts(loop))


def _picks(site: Site) -> bool:
    """Whether a random number says which sample comes: ``random.choice(rows)``, or an index and no part of a slice."""
    call, stmt = site.expr, site.link.stmt
    if isinstance(call, forms.Call) and last_name(call.func) in ("choice", "choices"):
        return True
    names = set(target_names(stmt.targets[0])) if isinstance(stmt, forms.Assign) and stmt.value is call else set()
    looked_up = (expr.index for expr in _expressions_of(site.link.scope) if isinstance(expr, forms.Sub))
    return any(index is call or isinstance(index, forms.Name) and index.id in names for index in looked_up)


def _only_counts(loop: Link) -> bool:
    """Whether a loop's rounds differ by nothing but their number."""
    if not isinstance(loop.stmt, forms.For):
        return True
    counted = set(target_names(loop.stmt.target))
    inside = (part for link in links_in(loop) for root in expressions(link.stmt) for part in descend(root))
    return not any(isinstance(part, forms.Name) and part.id in counted for part in inside)


def _expressions_of(scope: Scope) -> Iterator[forms.Expr]:
    return (part for stmt in statements(scope) for root in expressions(stmt) for part in descend(root))


def _uses_chance(dataset: DatasetClass) -> bool:
    return any(call.path.startswith(_RANDOM_ROOTS) for call in dataset.worker_code.calls)


def reads_to_its_end(dataset: DatasetClass) -> bool:
    """Whether the ``while True`` of ``__iter__`` ends when nothing is left: something leaves it, nothing is drawn."""
    method = dataset.project.method(dataset.cls, "__iter__")
    if method is None or _uses_chance(dataset):
        return False
    leaves = any(isinstance(link.stmt, forms.Jump) and link.stmt.kind == "break" for link in links_of(method))
    return leaves or bool(method.returns)
