"""`dlcheck` in a process of its own that need not import it first, which takes longer than most runs.

For tests of what a run says and how it ends. What an interpreter does when it starts, its search path, its streams,
what it imports and when, is tested with `python -m dlcheck` itself.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 120  # seconds


def dlcheck(
    *arguments: str, cwd: Path, environment: Mapping[str, str] | None = None, first: str = ""
) -> subprocess.CompletedProcess[str]:
    """What ``python -m dlcheck`` with these arguments prints, and its exit status.

    ``first`` is Python that its process runs before, where there is a fork.
    """
    known = dict(os.environ if environment is None else environment)
    if not hasattr(os, "fork"):
        assert not first
        command = [sys.executable, "-m", "dlcheck", *arguments]
        known["PYTHONPATH"] = str(ROOT)
        return subprocess.run(
            command, cwd=cwd, env=known, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT
        )
    with tempfile.TemporaryDirectory() as folder:
        streams = [os.path.join(folder, name) for name in ("stdout", "stderr")]
        status = int(_ask(json.dumps([list(arguments), str(cwd), known, streams, first])))
        out, err = (Path(stream).read_text(errors="backslashreplace") for stream in streams)
    return subprocess.CompletedProcess(["dlcheck", *arguments], status, out, err)


@functools.cache
def _server() -> subprocess.Popen[str]:
    """A process that has imported dlcheck; it ends with this one, whose end it reads."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, __file__]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _ask(request: str) -> str:
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(request + "\n")
    server.stdin.flush()
    return server.stdout.readline()


def _serve() -> None:
    """Run dlcheck in a child for each line; what the child does then, it does as the interpreter's main program."""
    del sys.path[0]
    import dlcheck.checks
    import dlcheck.cli
    import dlcheck.engine
    import dlcheck.facts.walk
    import dlcheck.model.subjects

    for module, _ in dlcheck.cli.COMMANDS.values():
        importlib.import_module(f"dlcheck.cli.{module}")
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _become(*json.loads(line))
            dlcheck.cli.main()
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(arguments: list[str], cwd: str, environment: dict[str, str], streams: list[str], first: str) -> None:
    signal.alarm(LIMIT)  # whose default is to end the process
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["dlcheck", *arguments]
    sys.dont_write_bytecode = True  # else the first run of a command would write what later ones do not
    for number, name in enumerate([os.devnull, *streams]):
        file = os.open(name, os.O_RDWR | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    exec(first, {"__name__": "first"})


if __name__ == "__main__":
    _serve()
