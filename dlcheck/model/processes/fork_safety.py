"""Libraries that do not survive a fork: used in the main process, they hang or fail in forked workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.data.keeping import kept_stores
from dlcheck.model.scopes import Link, Module
from dlcheck.model.values import Const, External, Made, Point
from dlcheck.model.workers import WorkerCall, WorkerCode, worlds_in_worker
from dlcheck.model.worlds import World, product

if TYPE_CHECKING:
    from dlcheck.model.datasets import DatasetClass
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.loaders import Loader

# Queries of polars that run on its thread pool, which a forked process has lost.  Taking a row, an item, a slice or a
# column does not (polars 2.1.0, each tried in a forked process).
_POLARS_QUERIES = frozenset(
    {"filter", "select", "with_columns", "sort", "join", "join_asof", "collect", "group_by", "groupby", "unique",
     "pivot", "group_by_dynamic", "sql", "fetch"}
)  # fmt: skip
_POLARS_LAZY = frozenset({"collect", "fetch", "sink_parquet", "sink_csv"})

# Filesystems of fsspec that run their own event loop in a thread.
_ASYNC_CLASSES = frozenset(
    {"s3fs.S3FileSystem", "s3fs.core.S3FileSystem", "gcsfs.GCSFileSystem", "gcsfs.core.GCSFileSystem",
     "adlfs.AzureBlobFileSystem", "fsspec.implementations.http.HTTPFileSystem"}
)  # fmt: skip
_ASYNC_PROTOCOLS = frozenset({"s3", "s3a", "gs", "gcs", "http", "https", "abfs", "abfss", "az", "adl"})

_GRPC = frozenset({"grpc.insecure_channel", "grpc.secure_channel"})

# Parts of JAX and TensorFlow that compute nothing.
_JAX_PLAIN = ("jax.tree", "jax.config", "jax.devices", "jax.debug", "jax.dtypes")
_TENSORFLOW_PLAIN = (
    "tensorflow.io.gfile", "tensorflow.gfile", "tensorflow.config", "tensorflow.train", "tensorflow.compat.v1.gfile",
    "tensorflow.get_logger", "tensorflow.keras",
)  # fmt: skip


class ForkUnsafe(NamedTuple):
    """Something that a dataset uses in the main process and again in its workers.

    ``kind``: a library with a pool of "threads", or a "client" with a thread or connection of its own.
    """

    kind: Literal["threads", "client"]
    library: str
    what: str
    dataset: str
    module: Module
    at: int
    link: Link
    other: tuple[Module, int] | None  # for threads, the use in the main process; for a client, that in a worker
    worlds: list[World]


def fork_unsafe(loader: Loader) -> Iterator[ForkUnsafe]:
    """What the datasets of a loader carry over a fork and should not."""
    for alt in loader.held_datasets:
        if alt.dataset is not None:
            for found in (*_thread_pools(alt.dataset), *_clients(alt.dataset)):
                yield found._replace(worlds=list(product(found.worlds, [alt.world])))


# -- thread pools


def _thread_pools(dataset: DatasetClass) -> Iterator[ForkUnsafe]:
    code = dataset.worker_code
    ev = dataset.project.evaluator
    for call in code.calls:
        name = _threaded(call.path)
        if not name:
            continue
        parent = _used_before(ev, code, call) or _used_in(dataset.construction_code, name)
        if parent is not None:
            worlds = worlds_in_worker(dataset.project, call.site.link, call.point.frame, call.world)
            what = call.path.replace("()", "(...)")
            yield ForkUnsafe(
                "threads", name, what, dataset.name, call.site.module, call.call.at, call.site.link, parent, worlds
            )
            return


def _threaded(path: str) -> str:
    """The library whose threads a call of ``path`` runs on, "" where it runs on none."""
    root, last = path.partition(".")[0], path.rpartition(".")[2]
    if root == "polars":
        if path.startswith("polars.read_") and "()" not in path:
            return "polars"
        lazy = path.startswith("polars.scan_") or ".lazy()" in path
        return "polars" if "()" in path and last in (_POLARS_LAZY if lazy else _POLARS_QUERIES) else ""
    if root == "jax":
        return "" if path.startswith(_JAX_PLAIN) else "JAX"
    if root == "tensorflow":
        return "" if path.startswith(_TENSORFLOW_PLAIN) else "TensorFlow"
    return ""


def _used_before(ev: Evaluator, code: WorkerCode, call: WorkerCall) -> tuple[Module, int] | None:
    """Where the table that a worker queries was read, if that was not in the worker."""
    scopes = {frame.scope for frame, _ in code.frames}
    for value in ev.values(call.call.func, call.point):
        made = value.of if isinstance(value, External) else None
        while isinstance(made, Made):
            point = made.args.point if made.args is not None and _threaded(made.path) else None
            if made.args is not None and made.args.call is not None and point and point.link.scope not in scopes:
                return point.module, made.args.call.at
            made = made.base if isinstance(made.base, Made) else None
    return None


def _used_in(code: WorkerCode, name: str) -> tuple[Module, int] | None:
    return next(((call.site.module, call.call.at) for call in code.calls if _threaded(call.path) == name), None)


# -- clients


def _clients(dataset: DatasetClass) -> Iterator[ForkUnsafe]:
    ev = dataset.project.evaluator
    code = dataset.worker_code
    for store, frame in kept_stores(dataset):
        if store.value is None or code.stores_attribute(store.target.name):
            continue
        if not code.reads_attribute(dataset.cls, store.target.name):
            continue
        for value, world in ev.eval(store.value, Point(frame, store.link)):
            name = _client(ev, value) if isinstance(value, Made) else ""
            if name and isinstance(value, Made) and value.args is not None and value.args.call is not None:
                point = value.args.point
                assert point is not None
                worlds = list(product(ev.guards(store.link, frame), [world]))
                yield ForkUnsafe(
                    "client", name, f"{value.path}(...)", dataset.name, point.module, value.args.call.at, point.link,
                    _use_of(code, value), worlds,
                )  # fmt: skip
    yield from _global_clients(ev, dataset)


def _global_clients(ev: Evaluator, dataset: DatasetClass) -> Iterator[ForkUnsafe]:
    """Clients that a module makes when it is imported, and whose methods a worker calls."""
    seen: set[int] = set()
    for call in dataset.worker_code.calls:
        func = call.call.func
        receiver = func.value if isinstance(func, forms.Attr) else None
        for value in ev.values(receiver, call.point) if isinstance(receiver, (forms.Name, forms.Attr)) else ():
            args = value.args if isinstance(value, Made) and _client(ev, value) else None
            if not isinstance(value, Made) or args is None or args.call is None or args.point is None:
                continue
            if args.point.link.scope.kind == "module" and args.call.at not in seen:
                seen.add(args.call.at)
                worlds = worlds_in_worker(dataset.project, call.site.link, call.point.frame, call.world)
                yield ForkUnsafe(
                    "client", _client(ev, value), f"{value.path}(...)", dataset.name, args.point.module,
                    args.call.at, args.point.link, (call.site.module, call.call.at), worlds,
                )  # fmt: skip


def _client(ev: Evaluator, made: Made) -> str:
    if made.path in _ASYNC_CLASSES:
        return "fsspec"
    if made.path == "fsspec.filesystem" and made.args is not None:
        protocol = calling.argument(made.args, "protocol", 0)
        names = [alt.value.value for alt in ev.force(protocol) if isinstance(alt.value, Const)] if protocol else []
        return "fsspec" if names and all(name in _ASYNC_PROTOCOLS for name in names) else ""
    if made.path in _GRPC:
        return "gRPC"
    # A stub speaks through the channel that it is given.
    first = calling.positional(made.args, 0) if made.args is not None else None
    given = [alt.value for alt in ev.force(first)] if first is not None else []
    return "gRPC" if any(isinstance(value, Made) and value.path in _GRPC for value in given) else ""


def _use_of(code: WorkerCode, made: Made) -> tuple[Module, int] | None:
    """A call in the worker of a method of the client."""
    for call in code.calls:
        if call.path.startswith(f"{made.path}()."):
            return call.site.module, call.call.at
    return None
