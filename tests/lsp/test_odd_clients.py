"""What editors send that no file stands behind, and settings that nobody can take."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_lsp
from editing import LOAD, TRAIN, Editor, capabilities, opened, start
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient

ROOT = Path(__file__).resolve().parent.parent.parent
# Where the server is started, which is gone by the time that it is asked.
STARTED = Path(tempfile.gettempdir()) / f"dlcheck-started-{os.getpid()}"
SERVER = ClientServerConfig(
    server_command=["sh", "-c", f"mkdir -p {STARTED} && cd {STARTED} && exec {sys.executable} -m dlcheck lsp"],
    server_env={**os.environ, "PYTHONPATH": str(ROOT)},
)
pytestmark = [pytest.mark.slow, pytest.mark.asyncio, pytest.mark.skipif(os.name == "nt", reason="it needs a shell")]


@pytest_lsp.fixture(config=SERVER)  # type: ignore[untyped-decorator]
async def client(lsp_client: LanguageClient, tmp_path: Path) -> AsyncIterator[None]:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "load.py").write_text(LOAD, encoding="utf-8")
    await start(lsp_client, capabilities("neovim"), [tmp_path])
    STARTED.rmdir()
    yield
    await lsp_client.shutdown_session()


@pytest.fixture
def editor(client: LanguageClient, tmp_path: Path) -> Editor:
    return Editor(client, tmp_path, "utf-16")


def opens(editor: Editor, uri: str, text: str, version: int = 1) -> None:
    item = types.TextDocumentItem(uri=uri, language_id="python", version=version, text=text)
    editor.client.text_document_did_open(types.DidOpenTextDocumentParams(item))


def sets(editor: Editor, settings: object) -> None:
    editor.client.workspace_did_change_configuration(types.DidChangeConfigurationParams({"dlcheck": settings}))


async def test_what_is_no_file_stands_for_none(editor: Editor) -> None:
    """A revision of ``load.py``, a folder, and an unsaved text of its name: the loader is still that of the file."""
    train = editor.folder / "train.py"
    for uri in (f"git:{editor.folder}/load.py?ref", "fugitive:///x/.git//0/load.py", "file:///", "untitled:load.py"):
        opens(editor, uri, "x = 1\n")
    editor.client.text_document_did_open(opened(train, TRAIN))
    await editor.shows(train, ("DLC101", 8))
    assert not any(uri.startswith(("git:", "fugitive:")) for uri in editor.client.diagnostics)


async def test_a_text_that_is_opened_twice(editor: Editor) -> None:
    train = editor.folder / "train.py"
    editor.client.text_document_did_open(opened(train, TRAIN))
    await editor.shows(train, ("DLC101", 8))
    editor.client.text_document_did_open(opened(train, "x = 1\n", version=2))
    await editor.shows(train)


async def test_settings_outlive_a_broken_file(editor: Editor) -> None:
    train = editor.folder / "train.py"
    editor.saves(editor.folder / "pyproject.toml", "[tool.dlcheck\n")
    sets(editor, {"ignore": ["DLC101"], "select": 3, "path": "/a/b"})
    await editor.until(lambda: any("`select` must be" in one.message for one in editor.client.messages))
    editor.client.text_document_did_open(opened(train, TRAIN))
    await editor.until(lambda: any("pyproject.toml" in one.message for one in editor.client.messages))
    editor.saves(editor.folder / "pyproject.toml", "")
    await editor.shows(train)
    sets(editor, {"ignore": []})
    await editor.shows(train, ("DLC101", 8))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"ignore": ["DLC999"]}, "no rule `DLC999`"),
        ({"select": ["nope"]}, "no rule `nope`"),
        ([1], "an object, not [1]"),
    ],
)
async def test_settings_that_mean_nothing_are_told(editor: Editor, settings: object, told: str) -> None:
    sets(editor, settings)
    editor.client.text_document_did_open(opened(editor.folder / "train.py", TRAIN))
    await editor.until(lambda: any(told in one.message for one in editor.client.messages))
