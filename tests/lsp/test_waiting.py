"""What takes long: it shows that it runs, and ends as soon as nobody wants it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_lsp
from editing import LOAD, TIMEOUT_S, TRAIN, Editor, capabilities, edited, opened, start, whole
from lsprotocol import types
from pygls.exceptions import JsonRpcRequestCancelled
from pytest_lsp import ClientServerConfig, LanguageClient

from dlcheck import config, engine
from dlcheck.warm import Interrupted, Warm

SERVER = [sys.executable, str(Path(__file__).with_name("patient_server.py"))]
SLOW = TRAIN.replace("größer 🐍", "slow")
pytestmark = pytest.mark.slow


@pytest_lsp.fixture(  # type: ignore[untyped-decorator]
    params=[("neovim", False), ("visual-studio-code", True)],
    ids=["neovim-is-pushed", "visual-studio-code-pulls"],
    config=ClientServerConfig(server_command=SERVER),
)
async def client(request: pytest.FixtureRequest, lsp_client: LanguageClient, tmp_path: Path) -> AsyncIterator[None]:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "load.py").write_text(LOAD, encoding="utf-8")
    name, pulls = request.param
    await start(lsp_client, capabilities(name, pulls), [tmp_path])
    yield
    await lsp_client.shutdown_session()


@pytest.fixture
def editor(client: LanguageClient, tmp_path: Path) -> Editor:
    return Editor(client, tmp_path, "utf-16")


def pulls(editor: Editor) -> bool:
    return editor.client.capabilities.workspace.diagnostics is not None  # type: ignore[union-attr]


async def finds(editor: Editor, path: Path, *expected: tuple[str, int]) -> None:
    """What is shown for a file, however this client comes to know it."""
    if pulls(editor):
        assert await editor.pulled(path) == list(expected)
    else:
        await editor.shows(path, *expected)


def reports(editor: Editor) -> list[type]:
    return [type(one) for found in editor.client.progress_reports.values() for one in found]


@pytest.mark.asyncio
async def test_the_first_scan_shows_that_it_runs(editor: Editor) -> None:
    train = editor.folder / "train.py"
    editor.client.text_document_did_open(opened(train, SLOW))
    await editor.until(lambda: reports(editor) == [types.WorkDoneProgressBegin])
    editor.client.text_document_did_change(edited(train, 2, whole("\n" + SLOW)))  # it is still the first that runs
    await asyncio.sleep(0.5)  # an end would have come by now
    assert reports(editor) == [types.WorkDoneProgressBegin]
    (editor.folder / "go").touch()
    await finds(editor, train, ("DLC101", 9))
    await editor.until(lambda: reports(editor) == [types.WorkDoneProgressBegin, types.WorkDoneProgressEnd])


@pytest.mark.asyncio
async def test_what_is_typed_ends_the_check_of_what_stood_there(editor: Editor) -> None:
    train = editor.folder / "train.py"
    editor.client.text_document_did_open(opened(train, SLOW))
    await editor.until(lambda: bool(reports(editor)))  # it runs
    editor.client.text_document_did_change(edited(train, 2, whole(TRAIN)))
    await finds(editor, train, ("DLC101", 8))


@pytest.mark.asyncio
async def test_a_cancelled_request_is_answered_and_what_it_alone_wanted_ends(editor: Editor) -> None:
    train, load = editor.folder / "train.py", editor.folder / "load.py"
    editor.client.text_document_did_open(opened(load, LOAD))
    await finds(editor, load)
    editor.client.text_document_did_open(opened(train, SLOW))
    named = types.TextDocumentIdentifier(train.as_uri())
    asked = types.DocumentDiagnosticParams(named) if pulls(editor) else types.HoverParams(named, types.Position(8, 20))
    method = types.TEXT_DOCUMENT_DIAGNOSTIC if pulls(editor) else types.TEXT_DOCUMENT_HOVER
    send: Any = editor.client.protocol.send_request_async
    request = asyncio.ensure_future(send(method, asked, msg_id="of-ours"))
    await editor.until((editor.folder / "waits").exists)
    if pulls(editor):  # that the other is to be checked once more, and waits for it
        await editor.until(lambda: editor.client.diagnostic_refresh_count > 0)
    editor.client.cancel_request(types.CancelParams("of-ours"))
    with pytest.raises(JsonRpcRequestCancelled):
        await asyncio.wait_for(request, TIMEOUT_S)
    if pulls(editor):  # else it is still wanted: to be pushed
        await finds(editor, load)
    (editor.folder / "go").touch()
    await finds(editor, train, ("DLC101", 8))


@pytest.mark.asyncio
async def test_mending_all_ends_when_something_is_typed(editor: Editor) -> None:
    train = editor.folder / "train.py"
    editor.client.text_document_did_open(opened(train, TRAIN.replace("größer 🐍", "mending")))
    await finds(editor, train, ("DLC101", 8))
    everywhere = types.Range(types.Position(0, 0), types.Position(20, 0))
    actions = asyncio.ensure_future(editor.actions(train.as_uri(), everywhere, "source.fixAll"))
    await editor.until((editor.folder / "waits").exists)
    editor.client.text_document_did_change(edited(train, 2, whole("\n" + TRAIN)))
    await finds(editor, train, ("DLC101", 9))
    await asyncio.wait_for(actions, TIMEOUT_S)


def test_a_check_that_nobody_wants_stops(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(LOAD, encoding="utf-8")
    with pytest.raises(Interrupted):
        engine.check([str(file)], config.load(str(tmp_path)), warm=Warm(stop=lambda: True))


def message(method: str, params: object, **more: object) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def test_a_client_that_has_gone_is_not_waited_for(tmp_path: Path) -> None:
    item = {"uri": (tmp_path / "train.py").as_uri(), "languageId": "python", "version": 1, "text": SLOW}
    able = {"window": {"workDoneProgress": True}}
    with subprocess.Popen(SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            server.stdin.write(message("initialize", {"processId": None, "rootUri": None, "capabilities": able}, id=1))
            server.stdin.write(message("initialized", {}))
            server.stdin.write(message("textDocument/didOpen", {"textDocument": item}))
            server.stdin.flush()
            said = b""
            while b"window/workDoneProgress/create" not in said:  # it runs
                said += os.read(server.stdout.fileno(), 65_536)
            server.stdin.close()
            server.wait(TIMEOUT_S)
        finally:
            server.kill()
