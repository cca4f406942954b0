"""What a test of the language server needs of an editor: a project, and what it does and shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from lsprotocol import types
from pytest_lsp import LanguageClient, client_capabilities

TIMEOUT_S = 60
CLIENTS = ("neovim", "visual-studio-code")

LOAD = """\
from torch.utils.data import DataLoader


def load(dataset):
    return DataLoader(dataset, batch_size=8, num_workers=2, pin_memory=True)
"""
TRAIN = """\
# größer 🐍
import torch
from load import load


def train(dataset, net):
    loader = load(dataset)
    for x in loader:
        "🐍🐍"; x = x.cuda()  # größer
        net(x).backward()
"""


def opened(path: Path, text: str, version: int = 1) -> types.DidOpenTextDocumentParams:
    return types.DidOpenTextDocumentParams(
        types.TextDocumentItem(uri=path.as_uri(), language_id="python", version=version, text=text)
    )


def edited(
    path: Path, version: int, *changes: types.TextDocumentContentChangeEvent
) -> types.DidChangeTextDocumentParams:
    named = types.VersionedTextDocumentIdentifier(version=version, uri=path.as_uri())
    return types.DidChangeTextDocumentParams(named, list(changes))


def whole(text: str) -> types.TextDocumentContentChangeWholeDocument:
    return types.TextDocumentContentChangeWholeDocument(text=text)


class Editor:
    """A client with a project."""

    def __init__(self, client: LanguageClient, folder: Path, encoding: str) -> None:
        self.client = client
        self.folder = folder
        self.encoding = encoding

    def units(self, text: str) -> int:
        if self.encoding == "utf-32":
            return len(text)
        return len(text.encode()) if self.encoding == "utf-8" else len(text.encode("utf-16-le")) // 2

    async def until(self, is_so: Callable[[], bool]) -> None:
        async def wait() -> None:
            while not is_so():
                await asyncio.sleep(0.01)

        await asyncio.wait_for(wait(), TIMEOUT_S)

    def codes(self, uri: str) -> list[tuple[Any, int]]:
        found = self.client.diagnostics.get(uri, [])
        return [(one.code, one.range.start.line) for one in found]

    async def shows(self, path: Path | str, *expected: tuple[str, int]) -> list[types.Diagnostic]:
        uri = path if isinstance(path, str) else path.as_uri()
        try:
            await self.until(lambda: uri in self.client.diagnostics and self.codes(uri) == list(expected))
        except asyncio.TimeoutError:
            assert self.codes(uri) == list(expected)
        return list(self.client.diagnostics[uri])

    async def pulls(self, path: Path, previous: str | None = None) -> types.DocumentDiagnosticReport:
        named = types.TextDocumentIdentifier(path.as_uri())
        asked = types.DocumentDiagnosticParams(named, previous_result_id=previous)
        return await asyncio.wait_for(self.client.text_document_diagnostic_async(asked), TIMEOUT_S)

    async def pulled(self, path: Path) -> list[tuple[Any, int]]:
        """What a client gets that asks for the findings of a file."""
        report = await self.pulls(path)
        assert isinstance(report, types.RelatedFullDocumentDiagnosticReport)
        return [(one.code, one.range.start.line) for one in report.items]

    def saves(self, path: Path, text: str) -> None:
        """A file changes on disk, and the editor has been asked to tell."""
        kind = types.FileChangeType.Changed if path.exists() else types.FileChangeType.Created
        path.write_text(text, encoding="utf-8")
        self.tells(path, kind)

    def tells(self, path: Path, kind: types.FileChangeType) -> None:
        event = types.FileEvent(path.as_uri(), kind)
        self.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([event]))

    def closes(self, path: Path) -> None:
        named = types.TextDocumentIdentifier(path.as_uri())
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(named))

    async def says(self, path: Path, text: str) -> None:
        """Wait until the first finding says a text, up to the interval of its measurement."""
        await self.until(lambda: self.client.diagnostics[path.as_uri()][0].message.partition(" [")[0] == text)

    async def actions(self, uri: str, where: types.Range, *only: str) -> dict[str, Any]:
        """The code actions by their titles; the client takes one that carries a command for a bare command."""
        context = types.CodeActionContext([], only=list(only) or None)
        asked = types.CodeActionParams(types.TextDocumentIdentifier(uri), where, context)
        found = await self.client.text_document_code_action_async(asked) or []
        return {one.title: one for one in found}

    def applied(self, text: str, edits: Iterable[types.TextEdit]) -> str:
        """A text after edits, as the protocol counts them."""
        for edit in sorted(edits, key=lambda one: (one.range.start.line, one.range.start.character), reverse=True):
            start, end = self._offset(text, edit.range.start), self._offset(text, edit.range.end)
            text = text[:start] + edit.new_text + text[end:]
        return text

    def _offset(self, text: str, at: types.Position) -> int:
        lines = text.split("\n")
        column = next(n for n in range(len(lines[at.line]) + 1) if self.units(lines[at.line][:n]) == at.character)
        return sum(len(line) + 1 for line in lines[: at.line]) + column


def edits_of(action: Any, uri: str) -> list[types.TextEdit]:
    """The edits of a code action for one text."""
    if action.edit.changes is not None:
        return list(action.edit.changes[uri])
    return [edit for change in action.edit.document_changes if change.text_document.uri == uri for edit in change.edits]


def capabilities(name: str, pulls: bool = False, encoding: str = "") -> types.ClientCapabilities:
    """What a client says that it can; one that pulls does so as Visual Studio Code does since 1.72."""
    found = client_capabilities(name)
    assert found.text_document is not None
    assert found.workspace is not None
    if pulls:
        found.text_document.diagnostic = types.DiagnosticClientCapabilities(dynamic_registration=True)
        found.workspace.diagnostics = types.DiagnosticWorkspaceClientCapabilities(refresh_support=True)
    if encoding:
        found.general = types.GeneralClientCapabilities(position_encodings=[types.PositionEncodingKind(encoding)])
    return found


async def start(
    client: LanguageClient, offered: types.ClientCapabilities, folders: Iterable[Path]
) -> types.InitializeResult:
    """Open folders in a client that takes every registration."""

    @client.feature(types.CLIENT_REGISTER_CAPABILITY)  # type: ignore[untyped-decorator]
    def register(_client: LanguageClient, _params: types.RegistrationParams) -> None:
        pass

    named = [types.WorkspaceFolder(folder.as_uri(), folder.name) for folder in folders]
    params = types.InitializeParams(capabilities=offered, workspace_folders=named)
    return await client.initialize_session(params)
