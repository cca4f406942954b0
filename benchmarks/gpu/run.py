"""C1 to C8 in rounds: starts the processes, collects their lines, and writes what came out.

Run through run.sh, which finds the interpreter.  After each group of a round its file is written anew,
so that a run that is cut short keeps what it has.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

import summary  # noqa: E402 -- it needs the checkout on the path
from cells import available, cells  # noqa: E402

from dlcheck.measure.serial import to_json  # noqa: E402

GRACE = 20.0  # seconds that a round may take beyond its own before it is ended


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure transfers and waits of a GPU.")
    parser.add_argument("out", nargs="?", default=os.environ.get("OUT") or "out", type=Path)
    parser.add_argument("--device", help="cpu (a rehearsal), cuda, cuda:1; without it, a GPU where there is one")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: whether it runs, not how fast")
    parser.add_argument("--rounds", type=int, default=summary.ROUNDS)
    parser.add_argument("--budget", type=float, default=330.0, metavar="SECONDS")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    options.memory = available()
    seen = summary.Seen(list(cells(options.quick, options.memory)))
    for number in range(options.rounds):
        left = options.budget - (time.monotonic() - started)
        if left < 5:
            print(f"round {number + 1}: no time left", flush=True)
            break
        play(number, left / (options.rounds - number), options, seen)
    wall_s = time.monotonic() - started
    return finish(seen, options, wall_s)


def play(number: int, seconds: float, options: argparse.Namespace, seen: summary.Seen) -> None:
    """One round in a process of its own, ended if it does not end by itself."""
    command = [sys.executable, str(HERE / "round.py"), "--round", str(number), "--seconds", f"{seconds:.1f}"]
    command += ["--memory", str(options.memory)]
    command += ["--quick"] if options.quick else []
    command += ["--device", options.device] if options.device else []
    # Hash seed and size of the environment move things in memory: let them differ between rounds.
    environment = {**os.environ, "PYTHONHASHSEED": str(1000 + number), "DLCHECK_PADDING": "x" * (997 * number % 4096)}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env=environment,
        start_new_session=os.name == "posix",
    )
    timer = threading.Timer(seconds + GRACE, end, [process])
    timer.start()
    try:
        with open(options.out / f"round-{number}.jsonl", "w", encoding="utf-8") as raw:
            assert process.stdout is not None
            for text in process.stdout:
                raw.write(text)
                line: dict[str, Any] = json.loads(text)
                seen.add(number, line)
                tell(number, line)
                if "done" in line:
                    write_group(seen, line["done"], options.out)
        process.wait()
    finally:
        timer.cancel()
        if process.poll() is None:
            end(process)
            process.wait()
    if process.returncode:
        print(f"round {number + 1} ended with status {process.returncode}", flush=True)


def end(process: subprocess.Popen[str]) -> None:
    """End a round and the loader's workers below it."""
    if os.name == "posix":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def tell(number: int, line: dict[str, Any]) -> None:
    if "ready" in line:
        print(f"round {number + 1}: ready in {line['setup_s']:.1f} s", flush=True)
        if number == 0:
            print(json.dumps(line["facts"], indent=1), flush=True)
    elif "done" in line:
        print(f"round {number + 1}: {line['done']} after {line['seconds']:.1f} s", flush=True)
    elif "error" in line:
        print(f"round {number + 1}: {line['cell']}: {line['error']}", flush=True)
    elif "skipped" in line:
        print(f"round {number + 1}: {line['skipped']}: no time left", flush=True)


def write_group(seen: summary.Seen, group: str, out: Path) -> None:
    """All blocks of a group so far."""
    names = {cell.name: cell for cell in seen.cells if cell.group == group}
    write(
        out / f"{group}.json",
        {
            "group": group,
            "cells": [{"name": cell.name, "config": cell.config, "arms": cell.arms} for cell in names.values()],
            "facts": {name: facts for name, facts in seen.facts.items() if name in names},
            "blocks": [block for block in seen.blocks if block["cell"] in names],
            "controls": [block for block in seen.controls if block["cell"] in names],
            "states": [state for state in seen.states if group in (state.get("group"), state.get("done"))],
        },
    )


def write(path: Path, content: Any) -> None:
    """Whole or not at all: the process may be ended at any time."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1), encoding="utf-8")
    part.replace(path)


def finish(seen: summary.Seen, options: argparse.Namespace, wall_s: float) -> int:
    """Records, page and acceptance; the exit status says whether all conditions hold that can be asked here."""
    conditions = summary.acceptance(seen, options.rounds)
    command = " ".join(["benchmarks/gpu/run.sh", *(["--device", options.device] if options.device else [])])
    write(options.out / "records.json", [to_json(record) for record in summary.records(seen, wall_s, command)])
    write(options.out / "facts.json", {"rounds": list(seen.rounds.values()), "errors": seen.errors, "wall_s": wall_s})
    write(options.out / "acceptance.json", [vars(one) for one in conditions])
    (options.out / "summary.md").write_text(summary.markdown(seen, options.rounds, wall_s), encoding="utf-8")
    for one in conditions:
        print(f"{one.status:20} {one.name}: {one.detail}", flush=True)
    print(f"{wall_s:.0f} s; {options.out / 'summary.md'}", flush=True)
    return 1 if any(one.status == "fail" for one in conditions) else 0


if __name__ == "__main__":
    sys.exit(main())
