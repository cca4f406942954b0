"""Before a program of the user's is run, by ``measure`` or ``tune``: may it be, and is nobody else at it?"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from dlcheck import files
from dlcheck.cli.speaking import Fault, complain
from dlcheck.config import PRE_COMMIT, common_folder

# What `--run` lets the program do to files.
POLICIES = {
    "log": "files are put back afterwards, new ones are removed",
    "keep": "files are put back afterwards, new ones stay",
    "deny": "it may write no file",
}


def _forbidden(options: Mapping[str, Any]) -> str:
    """Why nothing is to be run here, else nothing."""
    if os.environ.get(PRE_COMMIT):
        return "nothing is measured under pre-commit: a hook must not run your program"
    if os.environ.get("CI", "").lower() not in ("", "0", "false") and not options["in_ci"]:
        return "nothing is measured where CI is set, unless you say so: --in-ci"
    return ""


def refuse_to_measure(options: Mapping[str, Any]) -> None:
    if why := _forbidden(options):
        raise Fault(why)
    if options["run"] and options["factory"]:
        raise click.UsageError("--run and --factory are two ways to get at the loader: give one")
    if options["extract"] and not options["run"]:
        raise click.UsageError("--extract goes with --run")
    if options["audit"] != "log" and not options["run"]:
        raise click.UsageError("--audit goes with --run: a factory may do to files what it likes")
    if options["factory"] and ":" not in options["factory"]:
        raise click.UsageError(f"--factory is MODULE:FUNCTION, not `{options['factory']}`")
    if options["run"] is not None:
        _refuse_command(options["run"])
    if options["python"] is not None:
        import shutil

        if shutil.which(options["python"]) is None:
            raise Fault(f"{options['python']}: no program to run: name the Python of your project with --python")


def refuse_page(options: Mapping[str, Any]) -> None:
    page = options["report"]
    if not page or os.path.exists(page) and not os.path.isfile(page):  # a pipe's reader would take this for the end
        return
    there = os.path.exists(page)
    try:
        open(page, "ab").close()  # before an hour is spent on what cannot be written
        if not there:
            os.unlink(page)
    except OSError as error:
        raise Fault(f"{page}: {error.strerror or error}") from None


def _refuse_command(command: str) -> None:
    import re
    import shlex

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise click.UsageError(f"--run: {str(error).lower()} in `{command}`") from None
    if all(re.fullmatch(r"[A-Za-z_]\w*=.*", word, re.DOTALL) for word in words):
        raise click.UsageError("--run is empty: give the command that starts your program")
    reader = shlex.shlex(command, posix=True, punctuation_chars=";<>|&")
    reader.whitespace_split = True
    operator = next((word for word in reader if word and not word.strip(";<>|&")), None)
    if operator is not None:
        plain = not set(command) & set("'\"$`\\")
        whole = f"\"bash -c '{command}'\"" if plain else '"bash FILE", with this in a file'
        raise click.UsageError(f"--run takes one command, and no shell reads its `{operator}`: give --run {whole}")


@contextlib.contextmanager
def alone(paths: Sequence[str], options: Mapping[str, Any]) -> Iterator[None]:
    """Let nobody come between: another run, or a second Ctrl-C.

    Two programs that run in one project would each take for the user's files what the other has made of them.
    """
    from dlcheck.measure import interruptions, leftovers, program

    with contextlib.ExitStack() as stack:
        stack.enter_context(interruptions.heeded(program.any_open))
        for root in leftovers.roots([os.getcwd(), common_folder(paths)]) if options["run"] else ():
            lock = leftovers.lock(root)
            if not stack.enter_context(lock):
                owner = f" (process {lock.owner()})" if lock.owner() else ""
                raise Fault(f"another `dlcheck measure`{owner} works in {files.shown(root)}: wait until it has ended")
        yield


def put_back(paths: Sequence[str]) -> None:
    """Finish what a measurement has left that was killed; before any file is read."""
    from dlcheck.measure import interruptions, leftovers

    with interruptions.put_off():
        lines = leftovers.put_back([os.getcwd(), common_folder(paths)])
    for line in lines:
        complain(line)
