"""What is open in the editor: texts and notebooks, as they are at this moment, saved or not."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lsprotocol import types
from pygls import uris

from dlcheck import files
from dlcheck.lsp import texts
from dlcheck.lsp.texts import Encoding


@dataclass(frozen=True)
class Cell:
    """A cell of a notebook; only those of code are checked."""

    uri: str
    text: str
    is_code: bool


@dataclass(frozen=True)
class Document:
    """An open file: ``file`` is where it lies or would lie, absolute; a notebook has cells in the place of ``text``."""

    uri: str
    file: str
    version: int
    text: str = ""
    cells: tuple[Cell, ...] | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        """The bytes that saving would write."""
        if self.cells is None:
            return _encoded(self.text)
        code: dict[str, object] = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
        other: dict[str, object] = {"cell_type": "markdown", "metadata": {}}
        cells = [{**(code if cell.is_code else other), "source": cell.text} for cell in self.cells]
        notebook = {"cells": cells, "metadata": dict(self.metadata), "nbformat": 4, "nbformat_minor": 5}
        return json.dumps(notebook).encode("utf-8", "surrogatepass")

    def cell(self, number: int | None) -> Cell | None:
        """The code cell of a number, from 1."""
        codes = [cell for cell in self.cells or () if cell.is_code]
        return codes[number - 1] if number is not None and number <= len(codes) else None


def _encoded(text: str) -> bytes:
    """A text in the encoding that it declares, so that reading it gives the same text again."""
    data = text.encode("utf-8", "surrogatepass")
    encoding, _ = files.declared_encoding(data)
    try:
        return text.encode(encoding)
    except (LookupError, ValueError):
        return data


class Documents:
    """The open documents by their addresses."""

    def __init__(self) -> None:
        self.encoding: Encoding = "utf-16"
        self.folder = os.getcwd()
        self.by_uri: dict[str, Document] = {}
        self._notebooks: dict[str, str] = {}  # of a cell

    def find(self, uri: str) -> Document | None:
        """The document of an address, which may be that of a notebook's cell."""
        return self.by_uri.get(self._notebooks.get(uri, uri))

    def of_file(self, file: str) -> Document | None:
        """The open document of a file."""
        return next((document for document in self.by_uri.values() if document.file == file), None)

    def overlays(self) -> dict[str, bytes]:
        """The bytes of all that is open, by file."""
        return {document.file: document.data for document in self.by_uri.values()}

    # -- texts

    def open(self, item: types.TextDocumentItem) -> Document | None:
        """A document that was opened, or is said to be once more; None for what is no file and will be none.

        A revision of a file that a version control shows must not stand for the file.
        """
        file = file_of(item.uri, self.folder)
        if item.uri in self._notebooks or file is None or os.path.isdir(file):
            return None
        document = Document(item.uri, file, item.version, item.text)
        self.by_uri[item.uri] = document
        return document

    def change(self, params: types.DidChangeTextDocumentParams) -> Document | None:
        known = self.by_uri.get(params.text_document.uri)
        if known is None:
            return None
        text = changed(known.text, params.content_changes, self.encoding)
        document = replace(known, version=params.text_document.version, text=text)
        self.by_uri[known.uri] = document
        return document

    def close(self, uri: str) -> Document | None:
        return self.by_uri.pop(uri, None)

    # -- notebooks

    def open_notebook(self, params: types.DidOpenNotebookDocumentParams) -> Document | None:
        notebook = params.notebook_document
        known = {item.uri: item.text for item in params.cell_text_documents}
        cells = tuple(_cell(cell, known) for cell in notebook.cells)
        metadata = _plain(notebook.metadata)
        file = file_of(notebook.uri, self.folder)
        if file is None:
            return None
        return self._keep(Document(notebook.uri, file, notebook.version, "", cells, metadata))

    def change_notebook(self, params: types.DidChangeNotebookDocumentParams) -> Document | None:
        known = self.by_uri.get(params.notebook_document.uri)
        if known is None or known.cells is None:
            return None
        cells = list(known.cells)
        change = params.change.cells
        if change is not None and change.structure is not None:
            new = {item.uri: item.text for item in change.structure.did_open or ()}
            old = {cell.uri: cell.text for cell in cells}
            array = change.structure.array
            start = array.start
            cells[start : start + array.delete_count] = [_cell(cell, {**old, **new}) for cell in array.cells or ()]
        for kind in (change.data or ()) if change is not None else ():
            is_code = kind.kind == types.NotebookCellKind.Code
            cells = [replace(cell, is_code=is_code) if cell.uri == kind.document else cell for cell in cells]
        for content in (change.text_content or ()) if change is not None else ():
            uri = content.document.uri
            cells = [
                replace(cell, text=changed(cell.text, content.changes, self.encoding)) if cell.uri == uri else cell
                for cell in cells
            ]
        metadata = _plain(params.change.metadata) or known.metadata
        version = params.notebook_document.version
        return self._keep(replace(known, version=version, cells=tuple(cells), metadata=metadata))

    def close_notebook(self, uri: str) -> Document | None:
        self._notebooks = {cell: notebook for cell, notebook in self._notebooks.items() if notebook != uri}
        return self.by_uri.pop(uri, None)

    def _keep(self, document: Document) -> Document:
        self.by_uri[document.uri] = document
        self._notebooks = {cell: notebook for cell, notebook in self._notebooks.items() if notebook != document.uri}
        self._notebooks.update({cell.uri: document.uri for cell in document.cells or ()})
        return document


def changed(text: str, changes: Sequence[types.TextDocumentContentChangeEvent], encoding: Encoding) -> str:
    """A text after changes, each of which counts in what those before it have left."""
    for change in changes:
        if isinstance(change, types.TextDocumentContentChangePartial):
            start = texts.offset(text, change.range.start, encoding)
            end = texts.offset(text, change.range.end, encoding)
            text = text[:start] + change.text + text[max(start, end) :]
        else:
            text = change.text
    return text


def file_of(uri: str, folder: str) -> str | None:
    """The file of an address; for what was never saved, a name in a folder that nothing there has; else None."""
    scheme, _, rest = uri.partition(":")
    if scheme == "file":
        path = uris.to_fs_path(uri)
        return None if path is None else os.path.abspath(path)
    if scheme != "untitled":
        return None
    name = rest.rpartition("/")[2].partition("?")[0] or "untitled"
    base, suffix = os.path.splitext(name) if name.endswith(files.SUFFIXES) else (name, ".py")
    while os.path.lexists(os.path.join(folder, base + suffix)):
        base += "-unsaved"
    return os.path.join(folder, base + suffix)


def _cell(cell: types.NotebookCell, known: Mapping[str, str]) -> Cell:
    return Cell(cell.document, known.get(cell.document, ""), cell.kind == types.NotebookCellKind.Code)


def _plain(metadata: object) -> dict[str, object]:
    """The metadata of a notebook as the JSON that it came from."""
    if metadata is None:
        return {}
    if isinstance(metadata, Mapping):
        return {str(key): value for key, value in metadata.items()}
    return {str(key): value for key, value in getattr(metadata, "__dict__", {}).items()}
