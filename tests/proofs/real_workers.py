"""What the proofs share: processes that start in a fraction of a second, and interpreters that do not."""

from __future__ import annotations

import functools
import multiprocessing
import subprocess
import sys
import textwrap
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext

T = TypeVar("T")


@functools.cache
def forkserver() -> ForkServerContext:
    """A forkserver that has imported torch already: its workers pickle what they get, and start at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.utils.data", "numpy", "pytest"])
    return context


def apart(function: Callable[..., T], *arguments: Any, timeout: float = 120) -> T:
    """What a function returns in a process of its own that has imported torch already: for what would disturb this one.

    The function and its arguments are pickled. EOFError says that the process ended without an answer.
    """
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = forkserver().Process(target=_answer, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    try:
        if not ours.poll(timeout):
            raise TimeoutError(f"no answer in {timeout} seconds")
        answer: T = ours.recv()
        process.join(timeout)
    finally:
        process.kill()
        process.join()
        ours.close()
    return answer


def _answer(theirs: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    theirs.send(function(*arguments))


def run_scripts(text: str, count: int, *, timeout: float = 120) -> list[str]:
    """What fresh interpreters print, all started at once; each imports torch, which is two seconds of CPU."""
    command = [sys.executable, "-c", textwrap.dedent(text)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        return [program.communicate(timeout=timeout)[0] for program in started]
    finally:
        for program in started:
            program.kill()
            program.wait()
