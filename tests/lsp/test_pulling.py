"""Clients that ask for findings themselves, and are told when to ask again."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_lsp
from editing import CLIENTS, LOAD, TRAIN, Editor, capabilities, edited, opened, start, whole
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient

SERVER = [sys.executable, "-m", "dlcheck", "lsp"]
pytestmark = [pytest.mark.slow, pytest.mark.asyncio]


@pytest_lsp.fixture(params=CLIENTS, config=ClientServerConfig(server_command=SERVER))  # type: ignore[untyped-decorator]
async def client(request: pytest.FixtureRequest, lsp_client: LanguageClient, tmp_path: Path) -> AsyncIterator[None]:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "load.py").write_text(LOAD, encoding="utf-8")
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    answer = await start(lsp_client, capabilities(request.param, pulls=True), [tmp_path])
    provider = answer.capabilities.diagnostic_provider
    assert provider is not None
    assert provider.inter_file_dependencies
    yield
    await lsp_client.shutdown_session()


@pytest.fixture
def editor(client: LanguageClient, tmp_path: Path) -> Editor:
    return Editor(client, tmp_path, "utf-16")


async def again(editor: Editor, asked: int) -> int:
    """Wait to be told to ask again, after so many times; how many it is now."""
    await editor.until(lambda: editor.client.diagnostic_refresh_count > asked)
    return editor.client.diagnostic_refresh_count


async def test_findings_are_there_for_the_asking_and_not_pushed(editor: Editor) -> None:
    train = editor.folder / "train.py"
    editor.client.text_document_did_open(opened(train, TRAIN))
    first = await editor.pulls(train)
    assert isinstance(first, types.RelatedFullDocumentDiagnosticReport)
    (found,) = first.items
    assert (found.code, found.range.start.line) == ("DLC101", 8)
    assert await editor.pulls(train, first.result_id) == types.RelatedUnchangedDocumentDiagnosticReport(
        str(first.result_id)
    )
    assert "dlcheck: Add `non_blocking=True`" in await editor.actions(train.as_uri(), found.range)
    editor.client.text_document_did_change(edited(train, 2, whole("\n" + TRAIN)))
    moved = await editor.pulls(train, first.result_id)
    assert isinstance(moved, types.RelatedFullDocumentDiagnosticReport)
    assert [one.range.start.line for one in moved.items] == [9]
    assert editor.client.diagnostics == {}


async def test_a_client_that_asks_is_told_when_another_file_changes(editor: Editor) -> None:
    train, load = editor.folder / "train.py", editor.folder / "load.py"
    other = LOAD.replace(", pin_memory=True", "")
    editor.client.text_document_did_open(opened(train, TRAIN))
    editor.client.text_document_did_open(opened(load, LOAD))
    assert await editor.pulled(train) == [("DLC101", 8)]
    assert await editor.pulled(load) == []
    told = await again(editor, 0)  # that the second was opened
    editor.client.text_document_did_change(edited(load, 2, whole(other)))
    told = await again(editor, told)
    assert await editor.pulled(train) == []
    assert await editor.pulled(load) == [("DLC103", 4)]
    editor.closes(load)  # and what was typed is lost
    told = await again(editor, told)
    assert await editor.pulled(train) == [("DLC101", 8)]
    editor.saves(load, other)
    told = await again(editor, told)
    assert await editor.pulled(train) == []
    load.unlink()
    editor.tells(load, types.FileChangeType.Deleted)
    told = await again(editor, told)
    assert await editor.pulled(train) == []
    editor.saves(load, LOAD)
    told = await again(editor, told)
    assert await editor.pulled(train) == [("DLC101", 8)]
    editor.saves(editor.folder / "dlcheck.toml", 'extend-ignore = ["DLC101"]\n')
    told = await again(editor, told)
    assert await editor.pulled(train) == []
    settings = {"dlcheck": {"select": ["DLC101"], "extendIgnore": []}}
    editor.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings))
    await again(editor, told)
