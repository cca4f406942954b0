"""What only some clients ask for: columns counted in other units than by default, the address of a rule's page."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_lsp
from editing import CLIENTS, LOAD, TRAIN, Editor, capabilities, edited, edits_of, opened, start
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient

# What is said of an installed dlcheck whose owner has given an address.
PUBLISHED = Path(__file__).resolve().parent.parent / "data" / "published"
PATH = os.pathsep.join(filter(None, (str(PUBLISHED), os.environ.get("PYTHONPATH"))))
SERVER = ClientServerConfig(
    server_command=[sys.executable, "-m", "dlcheck", "lsp"], server_env={**os.environ, "PYTHONPATH": PATH}
)
pytestmark = [pytest.mark.slow, pytest.mark.asyncio]


@pytest_lsp.fixture(  # type: ignore[untyped-decorator]
    params=[(name, encoding) for name in CLIENTS for encoding in ("utf-8", "utf-16", "utf-32")],
    ids=lambda param: "-".join(param),
    config=SERVER,
)
async def client(request: pytest.FixtureRequest, lsp_client: LanguageClient, tmp_path: Path) -> AsyncIterator[None]:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "load.py").write_text(LOAD, encoding="utf-8")
    name, encoding = request.param
    answer = await start(lsp_client, capabilities(name, encoding=encoding), [tmp_path])
    assert answer.capabilities.position_encoding == encoding
    yield
    await lsp_client.shutdown_session()


@pytest.fixture
def editor(client: LanguageClient, tmp_path: Path) -> Editor:
    assert client.capabilities is not None
    assert client.capabilities.general is not None
    (encoding,) = client.capabilities.general.position_encodings or ()
    return Editor(client, tmp_path, encoding.value if isinstance(encoding, types.PositionEncodingKind) else encoding)


async def test_columns_are_counted_as_the_client_does(editor: Editor) -> None:
    train = editor.folder / "train.py"
    editor.client.text_document_did_open(opened(train, TRAIN))
    (found,) = await editor.shows(train, ("DLC101", 8))
    assert found.code_description is not None
    page = "DLC101-blocking-transfer-of-pinned-batch"
    assert found.code_description.href == f"https://rules.test/dlcheck/{page}"
    line = TRAIN.splitlines()[8]
    before = line[: line.index("x.cuda()")]
    assert found.range.start.character == editor.units(before)
    title = "dlcheck: Add `non_blocking=True`"
    actions = await editor.actions(train.as_uri(), found.range)
    fixed = TRAIN.replace("x.cuda()", "x.cuda(non_blocking=True)")
    assert editor.applied(TRAIN, edits_of(actions[title], train.as_uri())) == fixed
    # Another snake before what was found, then two characters after it: each counts in what the last has left.
    at = types.Position(8, editor.units(line[: line.index("🐍") + 1]))
    behind = types.Position(8, editor.units(f"{before}🐍x.cuda("))
    snake = types.TextDocumentContentChangePartial(range=types.Range(at, at), text="🐍")
    typed = types.TextDocumentContentChangePartial(range=types.Range(behind, behind), text="0,")
    editor.client.text_document_did_change(edited(train, 2, snake, typed))
    await editor.until(lambda: list(editor.client.diagnostics[train.as_uri()]) != [found])
    (moved,) = await editor.shows(train, ("DLC101", 8))
    assert moved.range.start.character == editor.units(f"{before}🐍")
    assert moved.range.end.character == editor.units(f"{before}🐍x.cuda(0,)")
