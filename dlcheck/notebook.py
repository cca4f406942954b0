"""The code cells of a Jupyter notebook as one Python module, line for line."""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any

from dlcheck.source import Cell, line_starts

# Magics that run their cell as Python in the notebook's own namespace.
PYTHON_CELL_MAGICS = ("time", "timeit", "capture", "prun", "memit", "mprun", "lprun", "wandb", "heat", "skip")
_MAGIC = re.compile(r"\s*[%!?]|\s*[\w.]+\?\??\s*$|\s*[\w.,\s]+=\s*[%!]")
# Not splitlines(): a form feed ends no line of Python.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)")
# Strings, comments, brackets and joined lines: enough to know which lines begin inside of something.
_TOKEN = re.compile(
    r"""(?P<string>\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}"""
    r"""|"(?:\\(?:\r\n|.)|[^"\\\r\n])*"|'(?:\\(?:\r\n|.)|[^'\\\r\n])*')"""
    r"""|(?P<comment>\#[^\r\n]*)|(?P<open>[\[({])|(?P<close>[\])}])|(?P<joint>\\(?:\r\n|\r|\n))|(?P<line>\r\n|\r|\n)""",
    re.DOTALL,
)


class NotebookError(ValueError):
    """The bytes are no notebook; ``line`` is where that shows."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


def to_module(text: str) -> tuple[str, tuple[Cell, ...]]:
    """The text of all code cells, one below the other, and where each begins.

    What is not Python keeps its lines and loses its content, so that positions stay true.
    A notebook of another language has no cells.
    """
    parts: list[str] = []
    cells: list[Cell] = []
    first_line = 0
    for number, code in enumerate(code_cells(text), 1):
        # After a carriage return as well: with a line feed that the next cell begins with it would be one line's end.
        code = _as_python(code if code.endswith("\n") else code + "\n")
        cells.append(Cell(number, first_line))
        parts.append(code)
        first_line += len(line_starts(code)) - 1
    return "".join(parts), tuple(cells)


def code_cells(text: str) -> list[str]:
    """The text of each code cell of a notebook's JSON."""
    import json

    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise NotebookError(error.lineno, f"not a notebook: {error.msg}") from None
    except RecursionError:
        raise NotebookError(1, "not a notebook: nested too deeply") from None
    except ValueError:  # Python reads no integer of more than 4300 digits
        raise NotebookError(1, "not a notebook: a number of too many digits") from None
    if not isinstance(document, dict):
        raise NotebookError(1, "not a notebook: no JSON object")
    cells = document.get("cells")
    if not isinstance(cells, list):  # the format of 2014 and before kept them in worksheets
        sheets = document.get("worksheets")
        if not isinstance(sheets, list):
            raise NotebookError(1, "not a notebook: it has no cells")
        cells = [cell for sheet in sheets if isinstance(sheet, dict) for cell in _list(sheet.get("cells"))]
    if _language(document) != "python":
        return []
    return [_text(cell) for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code"]


def _language(document: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return "python"
    for table, key in (("language_info", "name"), ("kernelspec", "language")):
        told = metadata.get(table)
        if isinstance(told, dict) and isinstance(told.get(key), str):
            return "python" if told[key].lower() in ("python", "ipython", "python3") else str(told[key])
    return "python"


def _text(cell: dict[str, Any]) -> str:
    source = cell.get("source", cell.get("input", ""))
    if isinstance(source, list):
        return "".join(line for line in source if isinstance(line, str))
    return source if isinstance(source, str) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _as_python(code: str) -> str:
    stripped = code.lstrip()
    if stripped.startswith("%%") and not re.match(rf"%%(?:{'|'.join(PYTHON_CELL_MAGICS)})\b", stripped):
        return "\n" * (len(line_starts(code)) - 1)
    return code if _parses(code) else _without_magics(code)


def _parses(code: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(code, "<cell>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _without_magics(code: str) -> str:
    inside = _lines_inside(code)
    lines = _LINE.findall(code)
    continues = False
    for number, line in enumerate(lines):
        bare = line.rstrip("\r\n")
        if continues:
            lines[number] = "#" + line
        elif number not in inside and _MAGIC.match(bare):
            indent = bare[: len(bare) - len(bare.lstrip())]
            lines[number] = f"{indent}pass  # {line[len(indent) :]}"
        else:
            continue
        continues = bare.endswith("\\")
    return "".join(lines)


def _lines_inside(code: str) -> set[int]:
    """The lines (from 0) that begin inside a string or a bracket: no magic can start there."""
    inside: set[int] = set()
    line = depth = 0
    for token in _TOKEN.finditer(code):
        if token.lastgroup == "string":
            inner = len(line_starts(token[0])) - 1
            inside.update(range(line + 1, line + inner + 1))
            line += inner
        elif token.lastgroup in ("line", "joint"):
            line += 1
            if depth or token.lastgroup == "joint":
                inside.add(line)
        elif token.lastgroup == "open":
            depth += 1
        elif token.lastgroup == "close":
            depth = max(depth - 1, 0)
    return inside
