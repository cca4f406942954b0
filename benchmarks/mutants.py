"""Do the tests notice when a rule is changed?  ``python benchmarks/mutants.py --work FOLDER --only dlcheck/checks``.

One change at a time is made to the code of the rules or the model: a comparison turned round, a condition dropped, a
constant changed, a statement removed.  The tests that run the changed line are run on it, until one fails.  What no
test notices is printed as a survivor: a missing test, or a change that changes nothing.

All of it happens in a copy of the repository in FOLDER.  What was judged is kept there, so that a second call goes on
where the first one ended; ``--recheck`` judges the survivors again, with the tests as they are now.  The copy is made
anew each time, and which test runs which line is measured anew whenever a judge or a page has changed.

Needs ``coverage`` and a system that can fork.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import mutations
import pytest
from mutations import Mutant

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
COPIED = ("dlcheck", "rules", "tests", "examples", "docs", "editors", "pyproject.toml", "README.md", "CHANGELOG.md")
TARGETS = ("dlcheck/checks", "dlcheck/model")

# Tests that call dlcheck within their own process, where the lines that each of them runs can be seen.
JUDGES = (
    "tests/model",
    "tests/test_broken_cells.py",
    "tests/test_constant_edits.py",
    "tests/test_engine.py",
    "tests/test_false_alarms.py",
    "tests/test_fixes_together.py",
    "tests/test_fixing.py",
    "tests/test_fixing_layouts.py",
    "tests/test_frameworks.py",
    "tests/test_lambda_edits.py",
    "tests/test_lazy_handles.py",
    "tests/test_loader_moves.py",
    "tests/test_mending.py",
    "tests/test_moving.py",
    "tests/test_option_edits.py",
    "tests/test_pages.py",
    "tests/test_rule_edges.py",
    "tests/test_safe_fixes.py",
)
# Read the rules' metadata or its table, and say nothing of what a check does.
SAY_NOTHING = ("test_page_is_complete", "test_metadata_reads_well", "test_table_is_current", "test_every_variant")
SURVIVED = ("survived", "uncovered")
AMISS = (98, 99)  # exit statuses of a child: other tests than were asked for, or no run at all
LIMIT_S = 60  # for one mutant; the slowest survivor took a third of it


class Verdict(NamedTuple):
    outcome: str  # killed | timeout | survived | uncovered
    tests: int
    seconds: float


class Choice:
    """A plugin of pytest: only these tests, in this order."""

    def __init__(self, chosen: Sequence[str]) -> None:
        self.order = {name: number for number, name in enumerate(chosen)}
        self.found = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self.order), key=lambda i: self.order[i.nodeid])
        self.found = len(items)


class Contexts:
    """A plugin of pytest: coverage under the name of the test that runs."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self.coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self.coverage.switch_context("")


# -- The copy, and what is known of it ---------------------------------------------------------------------------------


def copy(tree: Path) -> None:
    """The repository as it is now, in a folder of its own."""
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    skip = shutil.ignore_patterns("__pycache__", "node_modules", ".*_cache", "out")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=skip)
        else:
            shutil.copy2(ROOT / name, tree / name)


def options(judges: Iterable[str]) -> list[str]:
    quiet = ["-x", "-q", "--no-header", "--no-summary", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return [*quiet, "-m", "not slow and not long and not network", *judges]


def in_child(work: Path, run: Callable[[], int], limit_s: int, *, byte_code: bool) -> int | None:
    """The exit status of a function that runs in a child, in the copy; None where it took too long.

    Byte code is written without any mutant only: what is compiled later would be taken for the file's own.
    """
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        signal.alarm(limit_s)  # whose default is to end the process
        os.chdir(work / "tree")
        sys.path[:0] = [str(work / "tree"), str(work / "tree" / "tests")]
        sys.dont_write_bytecode = not byte_code
        log = os.open(work / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        status = 99
        try:
            status = run()
        finally:
            sys.stdout.flush()
            os._exit(status)
    try:
        _, status = os.waitpid(child, 0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what the tests of the child started; itself where this is interrupted
    late = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
    return None if late else os.waitstatus_to_exitcode(status)


def measured(work: Path) -> dict[str, dict[str, list[int]]]:
    """For each file below the targets, the lines that each test runs; kept until a page or a test changes."""
    tree = work / "tree"
    known = [path for part in ("dlcheck", "rules", "tests") for path in sorted((tree / part).rglob("*.*"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in known if path.is_file())).hexdigest()
    kept = work / "lines.json"
    if kept.exists() and (stored := json.loads(kept.read_text()))["digest"] == digest:
        in_child(work, lambda: int(pytest.main(["--collect-only", *options(JUDGES)])), 600, byte_code=True)
        return dict(stored["lines"])
    status = in_child(work, lambda: _measure(tree, work / "coverage"), 1800, byte_code=True)
    if status != 0:
        sys.exit(f"the tests do not pass without any mutant (status {status}): see {work / 'log'}")
    data = importlib.import_module("coverage").CoverageData(str(work / "coverage"))
    data.read()
    lines: dict[str, dict[str, list[int]]] = {}
    for file in data.measured_files():
        tests = lines.setdefault(Path(file).relative_to(tree).as_posix(), {})
        for line, contexts in data.contexts_by_lineno(file).items():
            for test in contexts:
                tests.setdefault(test, []).append(line)
    kept.write_text(json.dumps({"digest": digest, "lines": lines}))
    return lines


def _measure(tree: Path, file: Path) -> int:
    coverage = importlib.import_module("coverage").Coverage(
        data_file=str(file), include=[str(tree / part / "*") for part in TARGETS], config_file=False
    )
    coverage.erase()
    coverage.start()
    status = int(pytest.main(options(JUDGES), plugins=[Contexts(coverage)]))
    coverage.stop()
    coverage.save()
    return status


# -- One mutant --------------------------------------------------------------------------------------------------------


def concerned(mutant: Mutant, lines: dict[str, dict[str, list[int]]]) -> list[str]:
    """The tests that run a mutant's statement; those that run most of its file first, for they see most of it.

    What runs when its module is imported concerns all tests that use the file.
    """
    tests = lines.get(mutant.path, {})
    lines_of = {*range(mutant.first, mutant.last + 1)}
    early = mutant.at_import or not lines_of.isdisjoint(tests.get("", ()))  # "" is while modules are imported
    found = [
        (-len(ran), test)
        for test, ran in tests.items()
        if test and (early or not lines_of.isdisjoint(ran)) and not any(word in test for word in SAY_NOTHING)
    ]
    return [test for _, test in sorted(found)]


def judge(mutant: Mutant, tests: Sequence[str], work: Path) -> Verdict:
    """Run tests on a mutant until one fails."""
    start = time.monotonic()
    if not tests:
        return Verdict("uncovered", 0, 0)
    file = work / "tree" / mutant.path
    original, stat = file.read_bytes(), file.stat()
    try:
        file.write_bytes(mutant.applied(original))
        status = in_child(work, lambda: _tested(tests), LIMIT_S, byte_code=False)
    finally:
        file.write_bytes(original)
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # its byte code is good again
    # Whatever else is no success, a crash of the interpreter included, comes of the mutant.
    if status in (int(pytest.ExitCode.NO_TESTS_COLLECTED), *AMISS):
        sys.exit(f"{mutant}: no verdict (status {status}): see {work / 'log'}")
    outcome = "timeout" if status is None else "killed" if status else "survived"
    return Verdict(outcome, len(tests), round(time.monotonic() - start, 2))


def _tested(tests: Sequence[str]) -> int:
    choice = Choice(tests)
    status = int(pytest.main(options(dict.fromkeys(test.split("::")[0] for test in tests)), plugins=[choice]))
    return 98 if status == 0 and choice.found != len(tests) else status


# -- All of them -------------------------------------------------------------------------------------------------------


def every(tree: Path, only: Sequence[str]) -> list[Mutant]:
    """All mutants of these files."""
    named = [[tree / name] if name.endswith(".py") else (tree / name).rglob("*.py") for name in only]
    files = sorted({file for some in named for file in some})
    return [mutant for file in files for mutant in mutations.of(file.read_bytes(), file.relative_to(tree).as_posix())]


def drawn(mutants: Sequence[Mutant], sample: int | None, seed: int) -> list[Mutant]:
    """Some of them, each with the same chance; by a hash, so that a larger sample holds the smaller one."""
    return sorted(mutants, key=lambda one: hashlib.sha256(f"{seed}:{one.key}".encode()).digest())[:sample]


def stored(file: Path) -> dict[str, dict[str, Any]]:
    if not file.exists():
        return {}
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {row["key"]: row for row in rows}


def row(mutant: Mutant, verdict: Verdict) -> dict[str, Any]:
    return {"key": mutant.key, "mutant": str(mutant), "path": mutant.path, **verdict._asdict()}


def summary(rows: Sequence[dict[str, Any]]) -> str:
    survived = sorted(row["mutant"] for row in rows if row["outcome"] in SURVIVED)
    counted = Counter(row["outcome"] for row in rows)
    share = 100 * (len(rows) - len(survived)) / len(rows) if rows else 0
    told = ", ".join(f"{number} {outcome}" for outcome, number in sorted(counted.items()))
    return "\n".join([*(f"survived  {one}" for one in survived), f"{len(rows)} mutants: {told}; {share:.1f} % noticed"])


def main() -> None:
    asked = arguments()
    work = asked.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    tree = work / "tree"
    copy(tree)
    for name in ("_pytest.assertion.rewrite", "click", "hypothesis", "libcst", "numpy", "tomli", "unittest.mock"):
        importlib.import_module(name)  # once, and not in each child
    lines = measured(work)
    gc.freeze()
    known = stored(work / "judged.jsonl")
    mutants = every(tree, asked.only)
    end = time.monotonic() + 60 * asked.minutes
    with (work / "judged.jsonl").open("a", encoding="utf-8") as file:
        for mutant in wanted(mutants, known, asked):
            if time.monotonic() > end:
                break
            known[mutant.key] = row(mutant, judge(mutant, concerned(mutant, lines), work))
            file.write(json.dumps(known[mutant.key]) + "\n")
            file.flush()
    told = mutants if asked.recheck else sample_of(mutants, asked)
    judged = [known[mutant.key] for mutant in told if mutant.key in known]
    print(summary(judged))
    print(f"of the {len(mutants)} mutants of {', '.join(asked.only)}; seed {asked.seed}")


def sample_of(mutants: Sequence[Mutant], asked: argparse.Namespace) -> list[Mutant]:
    return drawn(mutants, asked.sample, asked.seed)


def wanted(mutants: Sequence[Mutant], known: dict[str, dict[str, Any]], asked: argparse.Namespace) -> list[Mutant]:
    """What this call is to judge: those of the sample that nobody has judged yet, or all survivors again."""
    if asked.recheck:
        return [one for one in mutants if one.key in known and known[one.key]["outcome"] in SURVIVED]
    return [one for one in sample_of(mutants, asked) if one.key not in known]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="a folder of its own; made where it is missing")
    parser.add_argument("--only", nargs="+", default=list(TARGETS), metavar="PATH", help="files or folders to change")
    parser.add_argument("--sample", type=int, metavar="N", help="so many mutants rather than all")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--minutes", type=float, default=60, help="begin no mutant after that; a later call goes on")
    parser.add_argument("--recheck", action="store_true", help="judge all survivors again, whatever the sample")
    asked = parser.parse_args()
    if not hasattr(os, "fork") or importlib.util.find_spec("coverage") is None:
        parser.error("needs a system that can fork, and coverage: pip install -e '.[test,lint]'")
    if asked.work.exists() and any(asked.work.iterdir()) and not (asked.work / "tree").is_dir():
        parser.error(f"--work {asked.work}: the folder holds something else")
    for name in asked.only:
        if not (ROOT / name).exists() or not name.startswith(TARGETS):
            parser.error(f"--only {name}: not a file or folder below {' or '.join(TARGETS)}")
    return asked


if __name__ == "__main__":
    main()
