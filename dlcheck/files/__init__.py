"""Files: their names, which concern a run, what is in them.

`finder` lists them, `workspace` holds those of one project.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from dlcheck.source import Source

SUFFIXES = (".py", ".pyw", ".ipynb")

# A file that names none of the first has nothing to do with torch; one that names none of the second neither builds a
# loader or a dataset, nor trains or has a trainer do it.  What only handles batches is read when the loop that calls
# it is followed; where it is named by itself, nothing leads to it, and the wider list decides.
LIBRARIES = (b"torch", b"lightning", b"monai", b"dgl", b"transformers", b"accelerate", b"trl")
TRIGGERS = (
    b"oader", b"Dataset", b"pin_memory", b"non_blocking", b"backward", b"Trainer", b"TrainingArguments", b"Compose",
    b"Subset", b"WeightedRandomSampler", b"random_split", b"set_sharing_strategy",
)  # fmt: skip
# Arrays are reversed, and become tensors: transforms in a file of their own.
REVERSING = (b"::-1", b"rot90", b"flip")
HANDLING = (*TRIGGERS, b"batch", b".cuda", b".to(")
COMMENT = b"dlcheck:"

# Never descended into, unless named: tool caches, environments, build output.
DEFAULT_EXCLUDE = (
    ".bzr", ".direnv", ".dlcheck_cache", ".eggs", ".git", ".git-rewrite", ".hg", ".ipynb_checkpoints", ".mypy_cache",
    ".nox", ".pants.d", ".pyenv", ".pytest_cache", ".pytype", ".ruff_cache", ".svn", ".tox", ".venv", ".vscode",
    "__pycache__", "__pypackages__", "_build", "buck-out", "build", "dist", "node_modules", "site-packages", "venv",
)  # fmt: skip

# Below the top of a project: what was measured of it.
RECORDS = os.path.join(".dlcheck", "measurements")

ROOT_MARKS = ("pyproject.toml", "setup.py", ".git")

MOST_BYTES = 256 << 20  # of one file: a notebook with pictures has some tens of millions


class UnusableError(Exception):
    """A file or folder that cannot be read as text; ``line`` counts from 1."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


@dataclass(frozen=True, slots=True)
class Named:
    """A file that the user asked for, by itself or through a folder, or what is wrong with it."""

    file: str
    explicit: bool
    problem: str = ""


def names_library(data: bytes) -> bool:
    """Whether a file with these bytes has to do with torch."""
    return any(word in data for word in LIBRARIES)


def may_matter(data: bytes, explicit: bool = True) -> bool:
    """Whether a rule can have anything to say of a file with these bytes, named by itself or through a folder."""
    if not names_library(data):
        return False
    if any(word in data for word in (HANDLING if explicit else TRIGGERS)):
        return True
    return b"from_numpy" in data and any(word in data for word in REVERSING)


def shown(file: str) -> str:
    """A path as reports print it: relative to the current folder where possible, with ``/``."""
    try:
        path = os.path.relpath(file)
    except ValueError:  # another drive
        path = file
    return path.replace(os.sep, "/")


MISSING = "no such file or folder"


def is_missing(path: str) -> bool:
    """Whether nothing stands at a path; what cannot be looked at, and a link that leads nowhere, does stand there."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        pass
    return False


# Reading


def read(file: str) -> bytes:
    """The bytes of a regular file; raises UnusableError, with words for people, where that fails."""
    try:
        status = os.stat(file)
        if not stat.S_ISREG(status.st_mode):
            raise UnusableError(f"{_kind(status.st_mode)}, not a file")
        if status.st_size <= MOST_BYTES:
            with open(file, "rb", opener=_without_waiting) as stream:
                data = stream.read(MOST_BYTES + 1)  # files of the kernel say that they are empty, and may never end
            if data is None:
                raise UnusableError("nothing to read, and no end of the file")
            if len(data) <= MOST_BYTES:
                return data
        raise UnusableError(f"larger than {MOST_BYTES >> 20} MiB, and not read")
    except OSError as error:
        raise UnusableError(error.strerror or str(error)) from None
    except ValueError as error:  # a NUL in the name
        raise UnusableError(str(error)) from None


def _without_waiting(file: str, flags: int) -> int:
    # What was a file a moment ago may be a pipe now, and some files of the kernel wait for what comes.
    return os.open(file, flags | getattr(os, "O_NONBLOCK", 0))


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    return next((name for test, name in kinds if test(mode)), "a special file")


_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BLANK = re.compile(rb"^[ \t\f]*(?:#[^\r\n]*)?$")
_FOREIGN_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


def decode(data: bytes) -> tuple[str, str, bool]:
    """Text, encoding and whether a byte-order mark stood in front, by the rules of PEP 263."""
    for mark, name in _FOREIGN_MARKS:
        if data.startswith(mark):
            raise UnusableError(f"encoded in {name}, which Python does not read")
    nul = data.find(b"\0")
    if nul >= 0:
        raise UnusableError("contains a NUL byte", data.count(b"\n", 0, nul) + 1)
    bom = data.startswith(codecs.BOM_UTF8)
    body = data[3:] if bom else data
    encoding, line = declared_encoding(body)
    try:
        if not getattr(codecs.lookup(encoding), "_is_text_encoding", True):
            raise LookupError
    except (LookupError, ValueError):
        raise UnusableError(f"declares the encoding `{encoding}`, which is unknown", line) from None
    name = codecs.lookup(encoding).name
    name = "utf-8" if name == "utf-8-sig" else name  # which would be written with a mark, whether there was one or not
    if bom and name != "utf-8":
        raise UnusableError(f"declares the encoding `{encoding}` behind a UTF-8 byte-order mark", line)
    try:
        return body.decode(name), name, bom
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise UnusableError(f"not {name}: {error.reason}", line) from None
    except (UnicodeError, ValueError) as error:
        raise UnusableError(f"not {name}: {error}") from None


def declared_encoding(data: bytes) -> tuple[str, int]:
    for number, line in enumerate(re.split(rb"\r\n|\r|\n", data[:4096], maxsplit=2)[:2], 1):
        if found := _COOKIE.match(line):
            return found[1].decode("ascii", "replace"), number
        if not _BLANK.match(line):
            break
    return "utf-8", 1


def to_source(file: str, data: bytes, path: str | None = None) -> Source:
    """The Source of a file's bytes; raises UnusableError where they are no text or no notebook."""
    path = shown(file) if path is None else path
    if not file.endswith(".ipynb"):
        text, encoding, bom = decode(data)
        return Source(path, file, text, encoding, bom)
    from dlcheck.notebook import NotebookError, to_module

    text, encoding, bom = decode(data)
    try:
        module = to_module(text)
    except NotebookError as error:
        raise UnusableError(error.message, error.line) from None
    texts, left_out = module.cell_texts, module.left_out
    return Source(path, file, module.text, encoding, bom, module.cells, text, texts, left_out)


# Folders


def above(folder: str) -> Iterator[str]:
    """A folder and all that it lies in, the nearest first."""
    while True:
        yield folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return
        folder = parent


def root_of(folder: str) -> str | None:
    """The nearest folder that is the top of a project."""
    return next(
        (place for place in above(folder) if any(os.path.exists(os.path.join(place, mark)) for mark in ROOT_MARKS)),
        None,
    )


def within(folder: str, path: str) -> bool:
    """Whether a path is a folder or lies in it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
