"""The interpreter that would train: its versions and how it starts workers, asked without importing torch."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

from dlcheck.measure.children import interpreter

PATIENCE_S = 30.0  # for a Python on a cold network disk

# The current folder goes first: a user's file may be called as a module that is imported here.
_ASK = """
import sys
sys.path[:] = [folder for folder in sys.path if folder]
import json
import multiprocessing
from importlib import metadata
try:
    torch = metadata.version("torch")
except metadata.PackageNotFoundError:
    torch = None
method = multiprocessing.get_start_method()
print(json.dumps(["%d.%d.%d" % sys.version_info[:3], torch, method, sys.platform]))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """``path`` as it was found; ``found`` says how; the rest is None where it did not answer, as ``problem`` says."""

    path: str
    found: str
    python: str | None = None
    torch: str | None = None
    start_method: str | None = None
    problem: str = ""


def ask(given: str | None, root: str) -> Interpreter:
    """Ask the Python of the user's project, as ``measure`` finds it; else the one that runs this."""
    known = interpreter(given, root)
    found = "--python" if given else "the active environment, or that of the project" if known else "runs dlcheck"
    path = known or sys.executable
    try:
        run = subprocess.run([path, "-c", _ASK], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        python, torch, method, _platform = json.loads(run.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return Interpreter(path, found, problem=f"{path} does not answer within {PATIENCE_S:.0f} s")
    except OSError as error:
        return Interpreter(path, found, problem=f"{path}: {error.strerror or error}")
    except (ValueError, IndexError):
        said = (run.stderr.strip().splitlines() or ["it says nothing"])[-1]
        return Interpreter(path, found, problem=f"{path} does not answer as Python does: {said[:200]}")
    return Interpreter(path, found, python, torch, method)
