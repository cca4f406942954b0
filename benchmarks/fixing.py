"""Whether fixes leave real repositories whole: ``python benchmarks/fixing.py FOLDER`` for the repositories in a folder.

Each is fixed in memory, unsafe fixes included, and nothing is written there.  Every changed file must
parse, compile where it did before (a call that names an argument twice does not), and differ from the
original only in lines that a fix of that round names.  ``--diffs FOLDER`` keeps the diffs, to be read.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from dlcheck import engine, files, fixing  # noqa: E402
from dlcheck.config import load  # noqa: E402
from dlcheck.findings import Finding  # noqa: E402
from dlcheck.warm import Warm  # noqa: E402

LIMIT_S = 3_600.0


@dataclass
class Result:
    """Of one repository; ``broken`` and ``strangers`` should be empty."""

    name: str
    findings: int = 0
    offered: Counter[str] = field(default_factory=Counter)  # fixes at first sight, by applicability
    refused: Counter[str] = field(default_factory=Counter)  # why not, by rule
    applied: Counter[str] = field(default_factory=Counter)
    left: int = 0  # findings of rules whose fixes were applied, where a fix is still offered
    files: int = 0
    lines: int = 0
    broken: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)  # changed lines that no fix names
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Watched:
    """Checks, and compares what each round made of the files with what its fixes name."""

    def __init__(self, folder: str, result: Result) -> None:
        self.folder = folder
        self.result = result
        self.config = load(folder, {}, isolated=True)
        self.warm = Warm()
        self.named: dict[str, set[int]] = {}
        self.before: dict[str, list[str]] = {}

    def __call__(self, after: Mapping[str, bytes]) -> engine.Report:
        for file, data in after.items():
            path = files.shown(file)
            self._compare(path, files.to_source(file, data).text.splitlines())
        report = engine.check([self.folder], self.config, overlays=after, warm=self.warm)
        self.before = {path: source.text.splitlines() for path, source in report.sources.items()}
        self.named = {}
        for finding in report.findings:
            self._note(finding, report)
        return report

    def _note(self, finding: Finding, report: engine.Report) -> None:
        for edit in finding.fix.edits if finding.fix else ():
            source = report.sources[edit.place.path]
            start, end = (source.position(offset)[0] for offset in source.span(edit.place))
            # What is inserted at the start of a line shows as new lines in front of it.
            self.named.setdefault(edit.place.path, set()).update(range(start - 1, end + 1))

    def _compare(self, path: str, after: list[str]) -> None:
        before = self.before.get(path, after)
        named = self.named.get(path, set())
        for kind, start, end, new_start, new_end in _differences(before, after):
            if kind == "insert":
                fits = any(at in named or at + 1 in named for at in _slides(after, before, new_start, new_end, start))
            else:
                starts = _slides(before, after, start, end, start) if kind == "delete" else [start]
                fits = any(set(range(at + 1, at + end - start + 1)) <= named for at in starts)
            if not fits:
                self.result.strangers.append(f"{path}:{start + 1}")


def _differences(before: list[str], after: list[str]) -> list[tuple[str, int, int, int, int]]:
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return [found for found in matcher.get_opcodes() if found[0] != "equal"]


def _slides(lines: list[str], others: list[str], start: int, end: int, at: int) -> list[int]:
    """Where else a block of new or lost lines may be said to stand: a blank line above it equals one at its end."""
    found = [at]
    up, down = 1, 0
    while start - up >= 0 and lines[start - up] == lines[end - up]:
        found.append(at - up)
        up += 1
    while end + down < len(lines) and lines[start + down] == lines[end + down]:
        down += 1
        found.append(at + down)
    return [place for place in found if 0 <= place <= max(len(lines), len(others))]


def measure(folder: str, diffs: str | None) -> Result:
    """Fix one repository in memory."""
    result = Result(os.path.basename(folder))
    start = time.perf_counter()
    check = Watched(folder, result)
    first = check({})
    result.findings = len(first.findings)
    for finding in first.findings:
        if finding.fix:
            result.offered[finding.fix.applicability] += 1
        elif finding.unfixed:
            result.refused[f"{finding.code}: {finding.unfixed}"] += 1
    fixed = fixing.fix(check, unsafe=True)
    result.seconds = time.perf_counter() - start
    result.applied = fixed.applied
    result.errors = [f"{one.path}:{one.line}: {one.message}" for one in fixed.errors]
    result.left = sum(finding.fix is not None for finding in fixed.report.findings)
    result.files = len(fixed.changes)
    for change in fixed.changes:
        text = change.diff()
        result.lines += sum(
            line.startswith(("+", "-")) and not line.startswith(("+++", "---")) for line in text.split("\n")
        )
        if not _compiles(change.after) and _compiles(change.before):
            result.broken.append(change.path)
        if diffs:
            with open(os.path.join(diffs, f"{result.name}.diff"), "a", encoding="utf-8") as stream:
                stream.write(text)
    return result


def _compiles(data: bytes) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(data, "<file>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return data.lstrip().startswith(b"{")  # a notebook, whose cells were parsed already
    return True


def _in_a_process(folder: str, diffs: str | None) -> Result:
    """A repository in a process of its own: what one does to the interpreter, another must not feel."""
    command = [sys.executable, os.path.abspath(__file__), "--one", folder, *(["--diffs", diffs] if diffs else [])]
    try:
        found = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return Result(os.path.basename(folder), errors=[f"took longer than {LIMIT_S:.0f} s"])
    if found.returncode:
        return Result(os.path.basename(folder), errors=[found.stderr.strip().splitlines()[-1]])
    known: dict[str, Any] = json.loads(found.stdout)
    counters = {name: Counter(known[name]) for name in ("offered", "refused", "applied")}
    return Result(**{**known, **counters})


def _table(results: list[Result]) -> str:
    head = "| repository | findings | safe | unsafe | applied | files | lines | broken | strange lines | s |"
    rows = [
        f"| {one.name} | {one.findings} | {one.offered['safe']} | {one.offered['unsafe']} "
        f"| {sum(one.applied.values())} | {one.files} | {one.lines} "
        f"| {len(one.broken)} | {len(one.strangers)} | {one.seconds:.0f} |"
        for one in results
    ]
    return "\n".join([head, "| --- " + "| ---: " * 9 + "|", *rows])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--diffs", help="write the diff of each repository into this folder")
    parser.add_argument("--only", help="the repositories, by their folders' names and with commas between")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(vars(measure(args.folder, args.diffs))))
        return 0
    diffs = os.path.abspath(args.diffs) if args.diffs else None
    if diffs:
        os.makedirs(diffs, exist_ok=True)
    results = []
    for name in args.only.split(",") if args.only else sorted(os.listdir(args.folder)):
        results.append(_in_a_process(os.path.abspath(os.path.join(args.folder, name)), diffs))
        print(
            f"{name}: {sum(results[-1].applied.values())} fixes, {results[-1].errors or 'no errors'}", file=sys.stderr
        )
    print(_table(results))
    totals: Counter[str] = Counter()
    for one in results:
        totals.update(one.applied)
        for line in (*one.broken, *one.strangers, *one.errors):
            print(f"{one.name}: {line}")
    print("\n" + "\n".join(f"{code}: {number}" for code, number in sorted(totals.items())))
    return int(any(one.broken or one.strangers or one.errors for one in results))


if __name__ == "__main__":
    sys.exit(main())
