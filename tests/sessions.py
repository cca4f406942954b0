"""The commands of the documentation: what is typed, in which folder, and what has to come of it.

A comment right above a block of `console` or `sh` with a `dlcheck` command in it says how it is run:

`run`: in a fresh copy of the repository's examples; `then`: in the copy that the block before it left;
`not run: REASON`.  `in=FOLDER` names the folder (the one above `examples` without it), `exit=1,0` the exit status of
each command (0 without it), `with=FOLDER` an empty folder that is to be there.  A `console` block shows what is
printed, an `sh` block does not.  `then: apply` above a `diff` block makes the change.

`python tests/sessions.py` writes anew what the `console` blocks show.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import forked

ROOT = Path(__file__).resolve().parent.parent
# Whatever lies in docs/ is documentation.
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]

KINDS = ("console", "sh", "bash", "shell")
FENCE = re.compile(r"(?:^<!-- (?P<how>[^\n]*) -->\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
HOW = re.compile(r"(?P<word>run|then)(?:: (?P<options>.+))?")
NOT_RUN = re.compile(r"not run: \S.*")
SHELL = re.compile(r"[|<>]|&&")


class Wrong(Exception):
    """A block that does not say how it is run, or does not do what it says."""


@dataclass(frozen=True)
class Block:
    """A block of a document: its comment, its kind (`console`), its text, and where the text begins."""

    file: Path
    line: int
    how: str
    kind: str
    text: str
    at: int

    @property
    def place(self) -> str:
        return f"{self.file.relative_to(ROOT).as_posix()}:{self.line}"

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Each command with what is shown of its output."""
        if self.kind == "console":
            parts = re.split(r"^\$ (.*)\n", self.text, flags=re.MULTILINE)
            if parts[0]:
                raise Wrong(f"{self.place}: a console block begins with `$ `")
            return list(zip(parts[1::2], parts[2::2], strict=True))
        joined = self.text.replace("\\\n", "")
        return [(line, "") for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]

    @property
    def concerns_dlcheck(self) -> bool:
        return self.kind in KINDS and any(
            re.search(r"(?:^|[\s/;|&(])dlcheck(?:\s|$)", line) for line, _ in self.commands
        )

    @property
    def is_run(self) -> bool:
        """Whether something is done with it; raises Wrong where nothing says so or why not."""
        if HOW.fullmatch(self.how):
            return True
        if self.concerns_dlcheck and not NOT_RUN.fullmatch(self.how):
            raise Wrong(f"{self.place}: a comment above it must say how it is run, or why not (tests/sessions.py)")
        return False

    @property
    def word(self) -> str:
        found = HOW.fullmatch(self.how)
        return found["word"] if found else ""

    @property
    def options(self) -> dict[str, str]:
        found = HOW.fullmatch(self.how)
        words = (found["options"] or "").split() if found else []
        return {name: value for name, _, value in (word.partition("=") for word in words)}

    def statuses(self, number: int) -> list[int]:
        """The exit status of each of its commands."""
        given = [int(word) for word in self.options.get("exit", "0").split(",")]
        if len(given) not in (1, number):
            raise Wrong(f"{self.place}: {len(given)} exit statuses for {number} commands")
        return given * number if len(given) == 1 else given


def blocks(file: Path, text: str | None = None) -> list[Block]:
    """The blocks of a document, in their order."""
    text = file.read_text(encoding="utf-8") if text is None else text
    return [
        Block(file, text.count("\n", 0, m.start("kind")) + 1, m["how"] or "", m["kind"], m["text"], m.start("text"))
        for m in FENCE.finditer(text)
    ]


def stories(file: Path) -> Iterator[list[Block]]:
    """The blocks that are run: each with those that go on in its copy of the examples."""
    story: list[Block] = []
    for block in (block for block in blocks(file) if block.is_run):
        if block.word == "then" and not story:
            raise Wrong(f"{block.place}: nothing is run before it")
        if block.word == "run" and story:
            yield story
            story = []
        story.append(block)
    if story:
        yield story


def stories_or_none(file: Path) -> list[list[Block]]:
    """The same; none where a block is wrong, of which a test of its own tells."""
    try:
        return list(stories(file))
    except Wrong:
        return []


class Play:
    """A copy of the examples in which blocks are run, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.top = folder / "copy"
        shutil.copytree(ROOT / "examples", self.top / "examples", ignore=shutil.ignore_patterns("data", ".*", "__*"))
        programs = folder / "bin"
        programs.mkdir()
        (programs / "dlcheck").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dlcheck "$@"\n')
        (programs / "dlcheck").chmod(0o755)
        known = {key: value for key, value in os.environ.items() if not key.startswith(("DLCHECK_", "GITHUB_"))}
        unset = {"FORCE_COLOR", "CLICOLOR_FORCE", "NO_COLOR", "COLUMNS", "PRE_COMMIT"}
        self.environment = {
            **{key: value for key, value in known.items() if key not in unset},
            "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONPATH": str(ROOT),
        }

    def outputs(self, block: Block) -> list[str]:
        """What each command of a block prints; raises Wrong where it ends otherwise than the block says."""
        folder = self.top / block.options.get("in", ".")
        if "apply" in block.options:
            apply(block, folder)
            return []
        if "with" in block.options:
            (folder / block.options["with"]).mkdir(parents=True)
        found = []
        statuses = block.statuses(len(block.commands))
        for (command, _), expected in zip(block.commands, statuses, strict=True):
            run = self._run(command, folder)
            if run.returncode != expected:
                said = f"{run.stdout}{run.stderr}"
                raise Wrong(f"{block.place}: `{command}` exits with {run.returncode}, not {expected}\n{said}")
            found.append(run.stdout + run.stderr)
        return found

    def _run(self, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
        words = shlex.split(command, comments=True)
        if words[0] == "dlcheck" and not SHELL.search(command):
            return forked.dlcheck(*words[1:], cwd=folder, environment=self.environment)
        return subprocess.run(
            ["sh", "-c", command], cwd=folder, env=self.environment, capture_output=True, text=True, check=False
        )


def apply(block: Block, folder: Path) -> None:
    """Make the change of a diff; each of its hunks must fit in one place."""
    for part in re.split(r"^--- .*\n(?=\+\+\+ )", block.text, flags=re.MULTILINE)[1:]:
        name, _, rest = part.partition("\n")
        file = folder / name.removeprefix("+++ ").strip()
        text = file.read_text(encoding="utf-8")
        for hunk in re.split(r"^@@.*\n", rest, flags=re.MULTILINE)[1:]:
            lines = [(line[:1], line[1:]) for line in hunk.splitlines()]
            before, after = ("".join(f"{text}\n" for mark, text in lines if mark != other) for other in "+-")
            if text.count(before) != 1:
                raise Wrong(f"{block.place}: the change fits in {text.count(before)} places of {name}")
            text = text.replace(before, after)
        file.write_text(text, encoding="utf-8")


def shown(block: Block, outputs: Iterable[str]) -> str:
    """The text of a console block with these outputs."""
    return "".join(f"$ {command}\n{output}" for (command, _), output in zip(block.commands, outputs, strict=True))


def rewrite(file: Path) -> None:
    """Write the outputs of a document's console blocks anew."""
    changed: dict[int, str] = {}
    for story in stories(file):
        with tempfile.TemporaryDirectory() as folder:
            play = Play(Path(folder))
            for block in story:
                outputs = play.outputs(block)
                if block.kind == "console":
                    changed[block.at] = shown(block, outputs)
    text = file.read_text(encoding="utf-8")
    for block in reversed(blocks(file, text)):
        if block.at in changed:
            text = text[: block.at] + changed[block.at] + text[block.at + len(block.text) :]
    file.write_text(text, encoding="utf-8")


def main() -> None:
    """Write the outputs of all documents anew."""
    for document in DOCUMENTS:
        rewrite(document)


if __name__ == "__main__":
    try:
        main()
    except Wrong as error:
        sys.exit(str(error))
