"""The code cells of a Jupyter notebook as one Python module, line for line."""

from __future__ import annotations

from typing import Any, NamedTuple

from dlcheck.cells import as_python, parses, salvaged
from dlcheck.source import Cell, LeftOut, line_starts


class NotebookError(ValueError):
    """The bytes are no notebook; ``line`` is where that shows."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


class Module(NamedTuple):
    """All code cells as one text: where each begins, the cells as they are, and which of them are no Python."""

    text: str
    cells: tuple[Cell, ...]
    cell_texts: tuple[str, ...]
    left_out: tuple[LeftOut, ...]


def to_module(text: str) -> Module:
    """The text of all code cells, one below the other.

    What is not Python keeps its lines and loses its content, so that positions stay true; what a cell that does
    not parse may bind has an unknown value.  A notebook of another language has no cells.
    """
    # After a carriage return as well: with a line feed that the next cell begins with it would be one line's end.
    codes = [code if code.endswith("\n") else code + "\n" for code in code_cells(text)]
    parts: list[str] = []
    cells: list[Cell] = []
    left_out: list[LeftOut] = []
    first_line = 0
    for number, code in enumerate(codes, 1):
        part = as_python(code)
        fault = _fault(part)
        if fault is not None:
            left_out.append(LeftOut(number, *fault))
            part = salvaged(part)
        cells.append(Cell(number, first_line))
        parts.append(part)
        first_line += len(line_starts(code)) - 1
    return Module("".join(parts), tuple(cells), tuple(codes), tuple(left_out))


def _fault(code: str) -> tuple[int, int, str] | None:
    """Where and why the code of a cell is no Python of any version: line, column, words."""
    if parses(code):
        return None
    from dlcheck.facts import Unreadable
    from dlcheck.facts.gate import refuse_hazards

    try:
        refuse_hazards(code)
    except Unreadable as error:
        return error.line, error.column, error.message
    return None


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
