"""What the proofs share: start methods whose workers start in a fraction of a second."""

from __future__ import annotations

import functools
import multiprocessing
import subprocess
import sys
import textwrap
from multiprocessing.context import BaseContext
from pathlib import Path


@functools.cache
def forkserver() -> BaseContext:
    """A forkserver that has imported torch already: its workers pickle what they get, and start at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.utils.data", "numpy"])
    return context


def run_script(text: str, *, timeout: float = 60, arguments: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a program of its own: for what a test must not do to its own process. Raises TimeoutExpired if it hangs."""
    command = [sys.executable, "-c", textwrap.dedent(text), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def run_file(file: Path, text: str, *, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Write a program and run it: spawned workers import the file of the main program, so there has to be one."""
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    return subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=timeout, check=False)
