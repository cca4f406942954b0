"""How sample code reads: the same file for every sample, a folder listed anew, and what is remembered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling, library
from dlcheck.model.data.archives import holders, is_read_as_archive, reads_fixed_member
from dlcheck.model.data.reaching import mentioned, reaching
from dlcheck.model.data.sample_code import SampleCode
from dlcheck.model.flow import links_of
from dlcheck.model.scopes import Link, Module, Scope, descend, dotted, expressions, last_name, target_names
from dlcheck.model.values import Frame, Instance, Point
from dlcheck.model.workers import WorkerCall

if TYPE_CHECKING:
    from dlcheck.facts.forms import Expr
    from dlcheck.model.project import Project

# Readers of a whole file, of which one sample is a part; by the argument that names the file.
WHOLE_READERS = frozenset(
    {
        "numpy.load", "numpy.loadtxt", "numpy.genfromtxt", "numpy.fromfile", "torch.load", "scipy.io.loadmat",
        "pandas.read_csv", "pandas.read_parquet", "pandas.read_pickle", "pandas.read_json", "pandas.read_hdf",
        "pandas.read_feather", "pandas.read_excel", "pandas.read_table", "json.load", "pickle.load", "joblib.load",
        "yaml.safe_load", "json.loads", "pickle.loads", "safetensors.torch.load_file", "pyarrow.parquet.read_table",
        "scipy.sparse.load_npz", "dill.load", "yaml.load",
    }
)  # fmt: skip

# Of these a part is only data where it is chosen by the sample; else they are settings.
_SETTINGS = frozenset({"json.load", "json.loads", "yaml.safe_load", "yaml.load"})

LISTINGS = frozenset({"os.listdir", "os.scandir", "os.walk", "os.fwalk", "glob.glob", "glob.iglob"})
_PATH_LISTINGS = frozenset({"iterdir", "rglob", "glob"})

# Calls that make one path, or one open file, of another.
_PATH_CALLS = frozenset(
    {"join", "str", "Path", "PurePath", "format", "joinpath", "with_suffix", "with_name", "abspath", "expanduser",
     "realpath", "normpath", "open", "fspath", "dirname", "resolve", "basename", "read", "read_text", "read_bytes",
     "replace", "lower", "upper", "strip"}
)  # fmt: skip


class Read(NamedTuple):
    """A whole file read for one sample.  ``shared``: the file is the same for all samples, else for several."""

    module: Module
    at: int
    link: Link
    what: str
    shared: bool


class Listing(NamedTuple):
    """A folder listed for one sample."""

    call: WorkerCall
    what: str


def repeated_reads(code: SampleCode) -> Iterator[Read]:
    """The whole-file reads that many samples repeat, and nobody remembers."""
    for call in code.code.calls:
        path = library.canonical(call.path)
        if path == "h5py.File":
            yield from _whole_members(code, call)
        what = _whole_read(call, path)
        if not what or is_remembered(code.project, call):
            continue
        source = _source(call)
        if source is None or path == "numpy.load" and _reads_members(call):
            continue
        fixed = Fixed(code).holds(source, call.point, 0)
        chosen = _part_by_sample(code, call)
        if fixed and (path not in _SETTINGS or chosen):
            yield Read(call.site.module, call.call.at, call.site.link, what, True)
        elif not fixed and path in _SHARDS and chosen and _names_shard(code, call, source):
            yield Read(call.site.module, call.call.at, call.site.link, what, False)


_SHARDS = frozenset(
    {
        "numpy.load", "torch.load", "pandas.read_csv", "pandas.read_parquet", "pandas.read_pickle", "pickle.load",
        "pandas.read_feather", "scipy.io.loadmat", "joblib.load", "numpy.loadtxt",
    }
)  # fmt: skip


def _whole_read(call: WorkerCall, path: str) -> str:
    """What a call reads whole, for a message; "" where it does not."""
    func = call.call.func
    if path in WHOLE_READERS:
        return "" if _is_lazy(path, call.call) else path
    if isinstance(func, forms.Attr) and func.name in ("read", "readlines") and not call.call.args:
        whole = path.startswith(("builtins.open().", "io.open().")) and not _seeks(call.site.scope)
        return "open(...)." + func.name if whole else ""
    return ""


def _whole_members(code: SampleCode, call: WorkerCall) -> Iterator[Read]:
    """``file["x"][:]`` of a file that is the same for all samples, and then ``[index]`` of that."""
    source = _source(call)
    if source is None or not Fixed(code).holds(source, call.point, 0) or is_remembered(code.project, call):
        return
    scope, names = call.site.scope, holders(call.call, call.site.link)
    index_names = _index_names(scope, call.point.frame, code)
    statements = [(link, [*map(_descended, expressions(link.stmt))]) for link in links_of(scope)]
    everywhere = [expr for _, parts in statements for part in parts for expr in part]
    for link, parts in statements:
        for whole in (expr for part in parts for expr in part if _is_whole_member(expr, names)):
            kept = set(target_names(link.stmt.targets[0])) if isinstance(link.stmt, forms.Assign) else set()
            if any(
                isinstance(expr, forms.Sub)
                and (expr.value is whole or dotted(expr.value) in kept)
                and _by_index(expr.index, index_names)
                for expr in everywhere
            ):
                yield Read(call.site.module, whole.at, link, "h5py.File(...)[...][:]", True)


def _descended(root: Expr) -> list[Expr]:
    return list(descend(root))


def _is_whole_member(expr: Expr, names: set[str | None]) -> bool:
    if not isinstance(expr, forms.Sub) or not isinstance(expr.value, forms.Sub):
        return False
    index, member = expr.index, expr.value
    everything = (
        isinstance(index, forms.Slice)
        and index.lower is index.upper is index.step is None
        or isinstance(index, forms.Const)
        and index.value is ...
        or isinstance(index, forms.Sequence)
        and not index.items
    )
    return everything and isinstance(member.index, forms.Const) and dotted(member.value) in names


def _reads_members(call: WorkerCall) -> bool:
    """Whether it opens an archive, of which each sample reads members of its own."""
    link = call.site.link
    return is_read_as_archive(call.call, link) and not reads_fixed_member(call.call, link)


def _seeks(scope: Scope) -> bool:
    calls = (site.expr for site in scope.module.calls_by_scope.get(scope, ()))
    return any(isinstance(call, forms.Call) and last_name(call.func) == "seek" for call in calls)


def _is_lazy(path: str, call: forms.Call) -> bool:
    """Memory-mapped, or only some rows or columns read."""
    for arg in call.args:
        off = isinstance(arg.value, forms.Const) and not arg.value.value
        if arg.star or arg.name in (
            "mmap_mode",
            "mmap",
            "chunksize",
            "nrows",
            "skiprows",
            "columns",
            "filters",
            "iterator",
        ):
            return not off
        if arg.name in ("offset", "count", "where", "start", "stop"):
            return True
    plain = sum(arg.name is None for arg in call.args)
    return bool(plain > (1 if path == "numpy.load" else 2) and path.startswith("numpy."))


def _source(call: WorkerCall) -> Expr | None:
    func = call.call.func
    if isinstance(func, forms.Attr) and func.name in ("read", "readlines") and not call.call.args:
        return func.value
    return next((arg.value for arg in call.call.args if not arg.star and arg.name in (None, "file", "f", "path")), None)


# -- whether something is the same for every sample


class Fixed:
    """Proves that an expression has one value for all samples; what it cannot prove, differs."""

    def __init__(self, code: SampleCode) -> None:
        self.code = code
        self._known: dict[tuple[Point, int], bool] = {}

    def holds(self, expr: Expr, point: Point, depth: int) -> bool:
        """Whether the expression is the same for every sample."""
        if depth > 12:
            return False
        # Asked once: names that are set in several branches would multiply.  What hangs on itself is not proved.
        key = (point, expr.at if expr.at >= 0 else id(expr))
        if key not in self._known:
            self._known[key] = False
            self._known[key] = self._holds(expr, point, depth)
        return self._known[key]

    def _holds(self, expr: Expr, point: Point, depth: int) -> bool:
        if isinstance(expr, forms.Const):
            return True
        if isinstance(expr, forms.Name):
            return self._name(expr.id, point, depth)
        if isinstance(expr, forms.Attr):
            return self._attribute(expr, point, depth)
        if isinstance(expr, forms.Call):
            return self._call(expr, point, depth)
        if isinstance(expr, forms.FString):
            return all(self.holds(part, point, depth + 1) for part in expr.parts)
        if isinstance(expr, forms.Binary):
            return self.holds(expr.left, point, depth + 1) and self.holds(expr.right, point, depth + 1)
        if isinstance(expr, forms.Sub):
            return self.holds(expr.value, point, depth + 1) and self.holds(expr.index, point, depth + 1)
        if isinstance(expr, forms.Sequence):
            return all(self.holds(item, point, depth + 1) for item in expr.items)
        if isinstance(expr, forms.IfExp):
            return all(self.holds(part, point, depth + 1) for part in (expr.test, expr.body, expr.orelse))
        return False

    def _name(self, name: str, point: Point, depth: int) -> bool:
        if point.inner is not None and _inner_binds(name, point):
            return False
        scope = point.frame.scope
        if name in scope.not_local:
            return False
        if name not in scope.names:
            return self._outer(name, scope)
        bindings, complete = reaching(name, point.link)
        for binding in bindings:
            if binding.how != "set" or binding.value is None:
                return False
            if not self._settled(binding.link, point, depth):
                return False
            if not self.holds(binding.value, Point(point.frame, binding.link), depth + 1):
                return False
        return complete or self._parameter(name, point.frame, depth)

    def _settled(self, link: Link, point: Point, depth: int) -> bool:
        """Whether the branch that sets a name is taken for every sample alike."""
        tests = [outer.stmt.test for outer in link.outer() if isinstance(outer.stmt, forms.If)]
        return all(self.holds(test, Point(point.frame, link), depth + 1) for test in tests)

    def _parameter(self, name: str, frame: Frame, depth: int) -> bool:
        params = [param.name for param in frame.scope.function.params] if frame.scope.kind == "function" else []
        if name not in params:
            return False
        if isinstance(frame.self_, Instance) and params[0] == name:
            return True
        if frame.site is None:  # the index, or a batch
            return False
        thunks = calling.parameter_thunks(self.code.project.evaluator, name, frame)
        return bool(thunks) and all(
            thunk.point is None or thunk.expr is not None and self.holds(thunk.expr, thunk.point, depth + 1)
            for thunk, _ in thunks
        )

    def _outer(self, name: str, scope: Scope) -> bool:
        """A name of the module: the same for all, unless a function sets it."""
        module = scope.module
        return not any(name in function.not_local for function in module.functions)

    def _attribute(self, expr: forms.Attr, point: Point, depth: int) -> bool:
        if not self.holds(expr.value, point, depth + 1):
            return False
        frame = point.frame
        if isinstance(expr.value, forms.Name) and isinstance(frame.self_, Instance):
            if self.code.project.method(frame.self_.cls, expr.name) is not None:
                return False
            return not self.code.code.stores_attribute(expr.name)
        return not self.code.code.stores_attribute(expr.name)

    def _call(self, call: forms.Call, point: Point, depth: int) -> bool:
        if last_name(call.func) not in _PATH_CALLS:
            return False
        if isinstance(call.func, forms.Attr) and not self.holds(call.func.value, point, depth + 1):
            return False
        return all(self.holds(arg.value, point, depth + 1) for arg in call.args)


def _inner_binds(name: str, point: Point) -> bool:
    inner = point.inner
    while inner is not None:
        form = inner.form
        if isinstance(form, forms.Lambda):
            if any(param.name == name for param in form.params):
                return True
        elif any(name in target_names(clause.target) for clause in form.clauses):
            return True
        inner = inner.parent
    return False


# -- what is remembered


def is_remembered(project: Project, call: WorkerCall) -> bool:
    """Whether what a call gives is kept for the next sample: a cache, an attribute, a test whether it is there."""
    frame: Frame | None = call.point.frame
    link = call.site.link
    while frame is not None:
        scope = frame.scope
        if any("cache" in (word := _decorator_words(decorator)) or "memo" in word for decorator in scope.decorators()):
            return True
        if _kept(link) or _under_test(link) or _kept_later(scope, link):
            return True
        site = frame.site
        if site is None or frame.args is None or frame.args.call is None:
            return False
        link, frame = site.link, site.frame
    return False


def _decorator_words(decorator: Expr) -> str:
    func = decorator.func if isinstance(decorator, forms.Call) else decorator
    return (dotted(func) or "").lower()


def _kept(link: Link) -> bool:
    """``self.x = load(...)``, ``cache[key] = load(...)``."""
    stmt = link.stmt
    if isinstance(stmt, forms.Assign):
        return any(not isinstance(target, (forms.Name, forms.Sequence)) for target in stmt.targets)
    if isinstance(stmt, forms.Declare):
        return not isinstance(stmt.target, forms.Name)
    return False


def _kept_later(scope: Scope, link: Link) -> bool:
    """``x = load(...)`` and then ``self.x = x``, or ``global x``."""
    names = {name for name in link.changes if "." not in name}
    if isinstance(link.stmt, forms.With):
        names |= {name for inner in link.blocks["body"] for name in inner.changes if "." not in name}
    for outer in link.outer():
        if isinstance(outer.stmt, forms.With):
            names |= {name for inner in outer.blocks["body"] for name in inner.changes if "." not in name}
    if names & scope.not_local:
        return True
    for other in links_of(scope):
        stmt = other.stmt
        if isinstance(stmt, forms.Assign) and dotted(stmt.value) in names and _kept(other):
            return True
    return False


def _under_test(link: Link) -> bool:
    """``if self.x is None``, ``if key not in cache``, ``except KeyError``: read once, or once in a while."""
    here = link
    for outer in link.outer():
        if here.slot.startswith("handler") and isinstance(outer.stmt, forms.Try):
            return True
        if isinstance(outer.stmt, forms.If) and _asks_for_cache(outer.stmt.test):
            return True
        here = outer
    for earlier in link.block[: link.index]:  # if self.x is not None: return self.x
        asks = isinstance(earlier.stmt, forms.If) and _asks_for_cache(earlier.stmt.test)
        if asks and any(inner.leaves for inner in earlier.blocks["body"]):
            return True
    return False


def _asks_for_cache(test: Expr) -> bool:
    return any(
        isinstance(expr, forms.Compare) and not {"in", "not in", "is", "is not", "!="}.isdisjoint(expr.ops)
        or isinstance(expr, forms.Unary) and expr.op == "not"
        or isinstance(expr, forms.Call) and last_name(expr.func) in ("hasattr", "getattr", "exists", "isfile")
        or isinstance(expr, (forms.Name, forms.Attr)) and "cache" in last_name(expr).lower()
        for expr in descend(test)
    )  # fmt: skip


# -- a part of the file, chosen by the sample


def _part_by_sample(code: SampleCode, call: WorkerCall) -> bool:
    """Whether what is read is indexed by something that follows from the sample's index."""
    scope, frame = call.site.scope, call.point.frame
    index_names = _index_names(scope, frame, code)
    holders = _holders(scope, call)
    for link in links_of(scope):
        for root in expressions(link.stmt):
            for expr in descend(root):
                if not isinstance(expr, forms.Sub) or not _by_index(expr.index, index_names):
                    continue
                whole = _without_keys(expr.value)
                if _is_it(whole, call.call) or dotted(whole) in holders:
                    return True
    # A helper that reads and returns the whole: its caller takes the part.
    site, args = frame.site, frame.args
    if site is not None and args is not None and args.call is not None and _returns(scope, call, holders):
        return _part_by_sample(code, call._replace(site=call.site._replace(expr=args.call, link=site.link), point=site))
    return False


def _without_keys(expr: Expr) -> Expr:
    """``data`` of ``data["x"]``."""
    while isinstance(expr, forms.Sub) and isinstance(expr.index, forms.Const) and isinstance(expr.index.value, str):
        expr = expr.value
    return expr


def _is_it(expr: Expr, call: forms.Call) -> bool:
    """The call itself, or an attribute, item or method of what it gives: ``read_csv(p).iloc``."""
    while True:
        if expr is call:
            return True
        if isinstance(expr, (forms.Attr, forms.Sub)):
            expr = expr.value
        elif isinstance(expr, forms.Call) and isinstance(expr.func, forms.Attr):
            expr = expr.func.value
        else:
            return False


def _holders(scope: Scope, call: WorkerCall) -> set[str | None]:
    """The names that hold what was read, or an attribute or item of it."""
    names: set[str | None] = set()
    for link in links_of(scope):
        stmt = link.stmt
        if isinstance(stmt, forms.Assign) and len(stmt.targets) == 1 and isinstance(stmt.targets[0], forms.Name):
            value = stmt.value
            base = value
            while isinstance(base, (forms.Attr, forms.Sub)):
                base = base.value
            if _is_it(value, call.call) or isinstance(base, forms.Name) and base.id in names:
                names.add(stmt.targets[0].id)
    names |= {f"{name}.{part}" for name in tuple(names) for part in ("iloc", "loc", "values", "data")}
    return names


def _returns(scope: Scope, call: WorkerCall, holders: set[str | None]) -> bool:
    return any(
        isinstance(link.stmt, forms.Return)
        and link.stmt.value is not None
        and (_is_it(link.stmt.value, call.call) or dotted(link.stmt.value) in holders)
        for link in scope.returns
    )


def _by_index(index: Expr, names: set[str]) -> bool:
    parts = index.items[:1] if isinstance(index, forms.Sequence) else (index,)
    for part in parts:
        bounds = (part.lower, part.upper) if isinstance(part, forms.Slice) else (part,)
        if any(bound is not None and mentioned(bound) & names for bound in bounds):
            return True
    return False


def _index_names(scope: Scope, frame: Frame, code: SampleCode) -> set[str]:
    """The names that are the sample's index, or a number or entry looked up with it."""
    params = [param.name for param in scope.function.params]
    if frame.site is None:
        names = set(params[1:] if scope.owner is not None else params)
    else:
        names = {
            name for name in params
            for thunk, _ in calling.parameter_thunks(code.project.evaluator, name, frame)
            if thunk.expr is not None and thunk.point is not None and code.code.varies(thunk.expr, thunk.point.frame)
        }  # fmt: skip
    for _ in range(3):
        for link in links_of(scope):
            stmt = link.stmt
            for target, value in _pairs(stmt) if isinstance(stmt, forms.Assign) else ():
                if _looks_up(value, names):
                    names.update(name for name in target_names(target) if "." not in name)
    return names


def _pairs(stmt: forms.Assign) -> Iterator[tuple[Expr, Expr]]:
    """The targets of an assignment, and what each gets; ``a, b = x, y`` are two."""
    for target in stmt.targets:
        value = stmt.value
        items = target.items if isinstance(target, forms.Sequence) else ()
        given = value.items if isinstance(value, forms.Sequence) else ()
        if items and len(items) == len(given):
            yield from zip(items, given, strict=True)
        else:
            yield target, value


def _looks_up(expr: Expr, names: set[str]) -> bool:
    """``i // n``, ``divmod(i, n)``, ``self.index[i]``, ``bisect(self.ends, i)``: an index made of the index."""
    if isinstance(expr, forms.Name):
        return expr.id in names
    if isinstance(expr, forms.Binary):
        return _looks_up(expr.left, names) or _looks_up(expr.right, names)
    if isinstance(expr, forms.Sub):
        base: Expr = expr.value
        while isinstance(base, (forms.Attr, forms.Sub)):
            base = base.value
        fixed = isinstance(base, forms.Name) and base.id not in names
        return _looks_up(expr.index, names) or not fixed and _looks_up(base, names)
    if isinstance(expr, forms.Call):
        known = last_name(expr.func) in _QUOTIENTS | {"int"}
        return known and any(_looks_up(arg.value, names) for arg in expr.args)
    return False


def _names_shard(code: SampleCode, call: WorkerCall, source: Expr) -> bool:
    """Whether several samples share the file: its number is ``i // n``, or found by bisection."""
    scope = call.site.scope
    path_names = mentioned(source)
    for _ in range(4):
        for link in links_of(scope):
            stmt = link.stmt
            if isinstance(stmt, forms.Assign) and any(
                set(target_names(target)) & path_names for target in stmt.targets
            ):
                if _divides(stmt.value):
                    return True
                path_names |= mentioned(stmt.value)
            if isinstance(stmt, forms.With):
                for item in stmt.items:
                    if set(target_names(item.target)) & path_names:
                        path_names |= mentioned(item.value)
                        if _divides(item.value):
                            return True
    if _divides(source):
        return True
    site, args = call.point.frame.site, call.point.frame.args
    if site is not None and args is not None and args.call is not None:
        outer = call._replace(site=call.site._replace(expr=args.call, link=site.link), point=site)
        return any(_names_shard(code, outer, arg.value) for arg in args.call.args)
    return False


def _divides(expr: Expr) -> bool:
    for node in descend(expr):
        if isinstance(node, forms.Binary) and node.op == "//":
            return True
        if isinstance(node, forms.Call) and last_name(node.func) in _QUOTIENTS:
            return True
    return False


_QUOTIENTS = frozenset({"divmod", "bisect", "bisect_right", "bisect_left", "searchsorted"})


# -- folders


def repeated_listings(code: SampleCode) -> Iterator[Listing]:
    """The folders that are listed anew for each sample although they are the same for all."""
    for call in code.code.calls:
        what = _listing(call)
        if what and not is_remembered(code.project, call):
            func = call.call.func
            fixed = Fixed(code)
            parts = [arg.value for arg in call.call.args]
            if isinstance(func, forms.Attr) and what.startswith("."):
                parts.append(func.value)
            if parts and all(fixed.holds(part, call.point, 0) for part in parts):
                yield Listing(call, what.lstrip("."))


def _listing(call: WorkerCall) -> str:
    path = library.canonical(call.path)
    if path in LISTINGS:
        return path
    func = call.call.func
    if isinstance(func, forms.Attr) and func.name in _PATH_LISTINGS:
        if path.startswith("pathlib.") or path == "" and func.name != "glob":
            return f".{func.name}"
        if path == "" and call.call.args and not call.call.args[0].star:
            return f".{func.name}"
    return ""
