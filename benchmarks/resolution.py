"""How many options of data loaders the model resolves, on checkouts of public repositories.

What there is to resolve is counted by the standard library's ``ast``, which shares nothing with the
model; the model is then asked about each of those calls.  ``python benchmarks/resolution.py FOLDER``
prints a table for the repositories in the folder, what stays unresolved, and a sample to check by hand.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

if TYPE_CHECKING:
    from dlcheck.facts import ModuleFacts
    from dlcheck.files.workspace import Workspace
    from dlcheck.model import Project
    from dlcheck.model.loaders import Loader, OptionAlt
    from dlcheck.model.values import Value
    from dlcheck.source import Source

Given = Literal["literal", "absent", "expression"]
Span: TypeAlias = "tuple[str, int, int]"  # the file, the line, the column (from 0, in bytes of UTF-8)

TARGET_WORKERS, TARGET_PAIR = 0.85, 0.45

# -- the denominator, by ast alone

_TORCH = frozenset({"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"})
# By position; the others are named.
_POSITIONS = {"num_workers": 5, "pin_memory": 7}
# Subclasses in libraries that take num_workers by name only.
_OTHERS = re.compile(
    r"torch_geometric\.(loader|data)\.(\w+\.)?(DataLoader|DataListLoader|DenseDataLoader|NeighborLoader|LinkNeighborLoader"
    r"|HGTLoader|ClusterLoader|NeighborSampler|ShaDowKHopSampler|GraphSAINT\w+|ImbalancedSampler|RandomNodeLoader)"
    r"|monai\.data\.(dataloader\.)?DataLoader|torchdata\.stateful_dataloader\.StatefulDataLoader"
)
_NO_LOADERS = frozenset({"ImbalancedSampler"})
_TEST_FILE = re.compile(r"test_.*\.py|.*_test\.py|conftest\.py")


@dataclass(frozen=True)
class Call:
    """A call that builds a loader, as its text alone shows it."""

    file: str  # relative to the repository
    line: int
    column: int
    constructor: str
    workers: Given
    workers_text: str
    names_pin: bool

    @property
    def torch(self) -> bool:
        return self.constructor in _TORCH


def python_files(top: str) -> Iterator[str]:
    """The .py files below a repository that are no tests."""
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if name not in ("test", "tests", ".git"))
        for name in sorted(names):
            if name.endswith(".py") and not _TEST_FILE.fullmatch(name):
                yield os.path.join(folder, name)


def calls_in(file: str, shown: str) -> list[Call] | None:
    """The loader constructors of a file; None where it does not parse."""
    with open(file, "rb") as stream:
        data = stream.read()
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError):
        return None
    names = _bindings(tree)
    return sorted(
        (
            _call(node, path, shown, tree)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and (path := _path(node.func, names)) and _is_loader(path)
        ),
        key=lambda call: (call.line, call.column),
    )


def _is_loader(path: str) -> bool:
    return path in _TORCH or (_OTHERS.fullmatch(path) is not None and path.rpartition(".")[2] not in _NO_LOADERS)


def _bindings(tree: ast.Module) -> dict[str, str]:
    """What each imported name of a file stands for, wherever in the file it is imported."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                names[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            for alias in node.names:
                if alias.name == "*":
                    if node.module in ("torch.utils.data", "torch.utils.data.dataloader"):
                        names.setdefault("DataLoader", "torch.utils.data.DataLoader")
                else:
                    names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.pop(node.name, None)
    return names


def _path(expr: ast.expr, names: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(expr, ast.Attribute):
        parts.append(expr.attr)
        expr = expr.value
    if not isinstance(expr, ast.Name) or expr.id not in names:
        return ""
    return ".".join((names[expr.id], *reversed(parts)))


def _call(node: ast.Call, path: str, shown: str, tree: ast.Module) -> Call:
    positions = _POSITIONS if path in _TORCH else {}
    workers = _argument(node, "num_workers", positions)
    spread = [keyword.value for keyword in node.keywords if keyword.arg is None]
    starred = any(isinstance(arg, ast.Starred) for arg in node.args)
    given: Given = "expression"
    text = ast.unparse(workers) if workers is not None else ", ".join(f"**{ast.unparse(value)}" for value in spread)
    if workers is not None and _literal(workers):
        given = "literal"
    elif workers is None and not spread and not starred:
        given = "absent"
    named = _argument(node, "pin_memory", positions) is not None
    pins = named or any(_mentions_pin(value, tree, set()) for value in spread)
    return Call(shown, node.lineno, node.col_offset, path, given, text, pins)


def _argument(node: ast.Call, name: str, positions: Mapping[str, int]) -> ast.expr | None:
    for keyword in node.keywords:
        if keyword.arg == name:
            return keyword.value
    number = positions.get(name, len(node.args))
    before = node.args[: number + 1]
    certain = not any(isinstance(arg, ast.Starred) for arg in before)
    return before[number] if certain and len(before) > number else None


def _literal(expr: ast.expr) -> bool:
    if isinstance(expr, ast.UnaryOp) and isinstance(expr.op, ast.USub):
        expr = expr.operand
    return isinstance(expr, ast.Constant)


def _mentions_pin(expr: ast.expr, tree: ast.Module, seen: set[str]) -> bool:
    """Whether what follows ``**`` is, in this file, a dict with the key ``pin_memory``."""
    if isinstance(expr, ast.Dict):
        named = any(isinstance(key, ast.Constant) and key.value == "pin_memory" for key in expr.keys)
        spread = (value for key, value in zip(expr.keys, expr.values, strict=True) if key is None)
        return named or any(_mentions_pin(value, tree, seen) for value in spread)
    if isinstance(expr, ast.IfExp):
        return _mentions_pin(expr.body, tree, seen) or _mentions_pin(expr.orelse, tree, seen)
    if isinstance(expr, ast.Call):
        if not isinstance(expr.func, ast.Name) or expr.func.id != "dict":
            return False
        named = any(keyword.arg == "pin_memory" for keyword in expr.keywords)
        return named or any(_mentions_pin(arg, tree, seen) for arg in expr.args)
    name = ast.unparse(expr)
    if not isinstance(expr, (ast.Name, ast.Attribute)) or name in seen:
        return False
    seen.add(name)
    return any(_mentions_pin(value, tree, seen) for value in _put_into(name, tree))


def _put_into(name: str, tree: ast.Module) -> Iterator[ast.expr]:
    """The values that a file assigns to a name, or puts into the dict of that name."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if ast.unparse(target) == name:
                    yield node.value
                elif isinstance(target, ast.Subscript) and ast.unparse(target.value) == name:
                    yield ast.Dict(keys=[target.slice], values=[node.value])
        elif isinstance(node, ast.Call) and _is_update(node.func, name):
            yield from node.args
            yield ast.Call(func=ast.Name(id="dict"), args=[], keywords=node.keywords)


def _is_update(func: ast.expr, name: str) -> bool:
    return isinstance(func, ast.Attribute) and func.attr == "update" and ast.unparse(func.value) == name


# -- the model's answers


@dataclass(frozen=True)
class Answer:
    """What the model says of one constructor call."""

    contexts: int = 0  # 0: it does not know of this loader
    known: bool = False  # every context has an alternative that is a value or a default
    certain: bool = False  # and none that is neither that nor "what the user passes instead of the default"
    values: Sequence[str] = ()
    why: Sequence[str] = ()
    pinned: bool = False  # some context knows whether it pins
    copies: int = 0  # copies of its batches that the model sees
    pair: bool = False  # some context knows, in one world, whether it pins and whether a copy blocks


def answers(top: str) -> dict[Span, Answer]:
    """What the model says of each loader of a repository, by where its constructor stands."""
    by_place: dict[Span, list[Loader]] = {}
    for project in projects(top):
        for loader in project.loaders:
            by_place.setdefault(_place(loader), []).append(loader)
    return {place: _answer(loaders) for place, loaders in by_place.items()}


def projects(top: str) -> Iterator[Project]:
    """The projects of a repository, built as a run over it builds them."""
    from dlcheck import engine, files
    from dlcheck.config import Config
    from dlcheck.files.finder import Finder
    from dlcheck.files.workspace import Workspace
    from dlcheck.model import Project

    config = Config()
    workspaces: dict[str, Workspace] = {}
    finder = Finder(lambda folder: config.for_folder(folder).exclude)
    named: dict[str, list[str]] = {}
    for one in engine.discover([top], config):
        root = files.root_of(os.path.dirname(one.file)) or top
        workspace = workspaces.setdefault(root, Workspace(root, finder))
        data = workspace.read(one.file)
        if not one.problem and data is not None and files.may_matter(data):
            named.setdefault(root, []).append(one.file)
    for root, members in named.items():
        pairs = [pair for file in members if (pair := _facts(workspaces[root], file)) is not None]
        yield Project(workspaces[root], pairs, config.for_folder(root).targets(root))


def _facts(workspace: Workspace, file: str) -> tuple[Source, ModuleFacts] | None:
    from dlcheck.facts import Unreadable, extract
    from dlcheck.files import UnusableError

    try:
        source = workspace.load(file)
        return source, extract(source)
    except (UnusableError, Unreadable):
        return None


def _place(loader: Loader) -> Span:
    source = loader.module.source
    line, column = source.position(loader.module.facts.span(loader.call.at)[0])
    before = source.line(line)[: column - 1]
    return source.file, line, len(before.encode())


def _answer(loaders: Sequence[Loader]) -> Answer:
    known = certain = True
    values: list[str] = []
    why: list[str] = []
    for loader in loaders:
        loader.project.evaluator.fresh()  # as before each question of a check
        options = loader.option("num_workers")
        known = known and any(_is_known(option) for option in options)
        certain = certain and all(_is_known(option) or _overrides(option.value) for option in options)
        values += [_told(option) for option in options if _is_known(option)]
        why += [_reason(option.value) for option in options if not _is_known(option) and not _overrides(option.value)]
    return Answer(
        len(loaders),
        known,
        known and certain,
        tuple(dict.fromkeys(values)),
        tuple(dict.fromkeys(why)),
        any(loader.pinning(True) or loader.pinning(False) for loader in loaders),
        sum(len(loader.copies()) for loader in loaders),
        any(_pair(loader) for loader in loaders),
    )


def _is_known(option: OptionAlt) -> bool:
    from dlcheck.model.values import Const

    return isinstance(option.value, Const) or option.positive


def _overrides(value: Value) -> bool:
    """Whether it is what the user passes instead of a default."""
    from dlcheck.model.values import Unknown

    return isinstance(value, Unknown) and isinstance(value.token, tuple) and value.token[:1] == ("other",)


def _pair(loader: Loader) -> bool:
    pins = [option.world for wanted in (True, False) for option in loader.pinning(wanted)]
    for transfer, source in loader.copies():
        for _, world in transfer.blocking:
            both = source.world.merge(world)
            if both is not None and any(both.merge(pin) is not None for pin in pins):
                return True
    return False


def _told(option: OptionAlt) -> str:
    """A value in words, and where it comes from."""
    from dlcheck.model.values import Const

    value = option.value
    if not isinstance(value, Const):
        return f"{getattr(value, 'path', value)}()"
    text = repr(value.value)
    if value.origin is not None:
        module = value.origin.module
        line = module.source.position(module.facts.span(value.origin.at)[0])[0]
        return f"{text} ({value.origin.words}, {os.path.basename(module.source.file)}:{line})"
    if option.module is None:
        return f"{text} (torch's default)"
    line = option.module.source.position(option.module.facts.span(option.at)[0])[0]
    return f"{text} ({os.path.basename(option.module.source.file)}:{line})"


def _reason(value: Value) -> str:
    """What the model knows of a value that is no constant."""
    token = getattr(value, "token", None)
    if isinstance(token, tuple):
        return f"{type(value).__name__}: {' '.join(_words(token))}"
    path = getattr(value, "path", "")
    return f"{type(value).__name__} {path}".strip()


def _words(token: Iterable[object]) -> Iterator[str]:
    from dlcheck.model.values import Frame

    for part in token:
        if isinstance(part, Frame):
            yield f"<{part.scope.module.name}.{part.scope.name}>"
        elif isinstance(part, tuple):
            yield from _words(part)
        elif isinstance(part, (str, int)):
            yield str(part)


# -- one repository, in a process of its own


@dataclass
class Row:
    """A loader that was counted, and what the model says of it."""

    repository: str
    call: Call
    answer: Answer


@dataclass
class Outcome:
    """A repository's rows, or why there are none."""

    repository: str
    rows: list[Row] = field(default_factory=list)
    unparsed: int = 0
    seconds: float = 0.0
    problem: str = ""


def examine(top: str) -> dict[str, object]:
    """The rows of a repository as plain data."""
    top = os.path.realpath(top)
    start = time.perf_counter()
    said = answers(top)
    seconds = time.perf_counter() - start
    rows = []
    unparsed = 0
    for file in python_files(top):
        calls = calls_in(file, os.path.relpath(file, top).replace(os.sep, "/"))
        for call in calls or ():
            answer = said.get((file, call.line, call.column), Answer())
            rows.append({"call": asdict(call), "answer": asdict(answer)})
        unparsed += calls is None
    return {"rows": rows, "unparsed": unparsed, "seconds": seconds}


def run_apart(folder: str, name: str, limit: float) -> Outcome:
    """Examine a repository in a process that may take so many seconds."""
    command = [sys.executable, os.path.abspath(__file__), "--one", os.path.join(folder, name)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return Outcome(name, problem=f"not done after {limit:.0f} s")
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        return Outcome(name, problem=f"failed: {last[0]}")
    data = json.loads(done.stdout)
    rows = [Row(name, Call(**row["call"]), Answer(**row["answer"])) for row in data["rows"]]
    return Outcome(name, rows, data["unparsed"], data["seconds"])


# -- the report


def _share(part: int, whole: int) -> str:
    return f"{part}/{whole} = {part / whole:.0%}" if whole else "-"


def _indirect(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.call.workers == "expression"]


def _pinning(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.call.names_pin]


def _line(name: str, rows: Sequence[Row], seconds: float = 0) -> str:
    given = Counter(row.call.workers for row in rows)
    indirect, pinning = _indirect(rows), _pinning(rows)
    cells = (
        name,
        str(len(rows)),
        str(sum(row.answer.contexts > 0 for row in rows)),
        str(given["literal"]),
        str(given["absent"]),
        _share(sum(row.answer.known for row in indirect), len(indirect)),
        _share(sum(row.answer.certain for row in indirect), len(indirect)),
        _share(sum(row.answer.pinned for row in pinning), len(pinning)),
        _share(sum(row.answer.pair for row in pinning), len(pinning)),
        f"{seconds:.0f}" if seconds else "",
    )
    return f"| {' | '.join(cells)} |"


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The counts, one line for each repository that has loaders, and the totals."""
    heads = (
        "repository", "loaders", "seen", "literal", "absent", "workers resolved", "in every alternative",
        "pinned known", "pair decided", "seconds",
    )  # fmt: skip
    yield f"| {' | '.join(heads)} |"
    yield f"| {' | '.join(['---'] + ['---:'] * (len(heads) - 1))} |"
    for outcome in outcomes:
        if outcome.rows:
            yield _line(outcome.repository.replace("__", "/"), outcome.rows, outcome.seconds)
        elif outcome.problem:
            yield f"| {outcome.repository.replace('__', '/')} | {outcome.problem} |"
    rows = [row for outcome in outcomes for row in outcome.rows]
    yield _line("torch's DataLoader", [row for row in rows if row.call.torch])
    yield _line("subclasses of libraries", [row for row in rows if not row.call.torch])
    yield _line("**all**", rows)


def _where(row: Row) -> str:
    return f"{row.repository}/{row.call.file}:{row.call.line}"


def unresolved(rows: Sequence[Row]) -> Iterator[str]:
    """The loaders behind the gaps, each with what the model says."""
    yield "Workers unresolved:"
    for row in _indirect(rows):
        if not row.answer.known:
            why = "; ".join(row.answer.why[:4]) if row.answer.contexts else "loader not seen"
            yield f"  {_where(row)}: {row.call.workers_text}  [{why}]"
    yield "Workers resolved, but unknown in some alternative:"
    for row in _indirect(rows):
        if row.answer.known and not row.answer.certain:
            told = f"{'; '.join(row.answer.values[:3])}  [{'; '.join(row.answer.why[:3])}]"
            yield f"  {_where(row)}: {row.call.workers_text} -> {told}"
    yield "Pair (pinned, non_blocking) undecided:"
    for row in _pinning(rows):
        if not row.answer.pair:
            copies = f"{row.answer.copies} copies" if row.answer.contexts else "loader not seen"
            yield f"  {_where(row)}: pinned {'known' if row.answer.pinned else 'unknown'}, {copies}"


def sample(rows: Sequence[Row], number: int, seed: int) -> Iterator[str]:
    """Resolved values, drawn at random, to check by hand."""

    def lot(row: Row) -> float:
        # Each loader has a lot of its own: another version of the model draws nearly the same ones.
        return random.Random(f"{seed} {_where(row)}").random()

    known = [row for row in _indirect(rows) if row.answer.known]
    for row in sorted(sorted(known, key=lot)[:number], key=_where):
        yield f"  {_where(row)}: {row.call.workers_text} -> {'; '.join(row.answer.values)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="holds the checkouts, each in a folder OWNER__NAME")
    parser.add_argument("--only", default="", help="repositories whose name contains this")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one repository (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    parser.add_argument("--sample", type=int, default=30, metavar="N", help="resolved values to draw")
    parser.add_argument("--seed", type=int, default=2, help="of the draw (default: %(default)s)")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return parser


def main() -> int:
    options = _parser().parse_args()
    say: Callable[[str], None] = print
    if options.one:
        say(json.dumps(examine(options.folder)))
        return 0
    checkouts = (entry.name for entry in os.scandir(options.folder) if entry.is_dir())
    names = sorted(name for name in checkouts if options.only in name)
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(lambda name: run_apart(options.folder, name, options.limit), names))
    rows = [row for outcome in outcomes for row in outcome.rows]
    for line in table(outcomes):
        say(line)
    say(f"\nNot counted, because ast does not read them: {sum(outcome.unparsed for outcome in outcomes)} files\n")
    for line in unresolved(rows):
        say(line)
    say(f"\nSample of {options.sample} (seed {options.seed}):")
    for line in sample(rows, options.sample, options.seed):
        say(line)
    indirect, pinning = _indirect(rows), _pinning(rows)
    enough = sum(row.answer.known for row in indirect) >= TARGET_WORKERS * len(indirect)
    enough = enough and sum(row.answer.pair for row in pinning) >= TARGET_PAIR * len(pinning)
    return 0 if enough and not any(outcome.problem for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
