"""A long session of random edits: no crash, no stale range, and in the end what the command line says."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from lsprotocol import types
from pygls.lsp.client import LanguageClient

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "examples" / "faulty"
FILES = ("train.py", "data.py", "loaders.py", "engine.py", "devices.py", "pretrain.py")
PIECES = (
    "",
    "(",
    ")",
    "\n",
    "    ",
    "x = 1\n",
    "🐍",
    "# größer",
    "'''",
    "\r\n",
    "for x in loader:\n",
    "\u2028",
    ".cuda()",
    ",",
)
EDITS = 2_000


class Session:
    """A client that is pushed to, and the texts as it holds them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = LanguageClient("session", "1")
        self.texts: dict[str, list[str]] = {}  # every version, from the first
        self.shown: dict[str, types.PublishDiagnosticsParams] = {}
        self.faults: list[str] = []

        @self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)  # type: ignore[untyped-decorator]
        def published(params: types.PublishDiagnosticsParams) -> None:
            self.shown[params.uri] = params
            self._judge(params)

        @self.client.feature(types.WINDOW_SHOW_MESSAGE)  # type: ignore[untyped-decorator]
        def told(params: types.ShowMessageParams) -> None:
            self.faults.append(params.message)

    def _judge(self, params: types.PublishDiagnosticsParams) -> None:
        """Ranges lie in the text of the version that they are for."""
        assert params.version is not None
        lines = split(self.texts[params.uri][params.version])
        for one in params.diagnostics:
            for at in (one.range.start, one.range.end):
                if at.line >= len(lines) or at.character > len(lines[at.line].encode("utf-16-le")) // 2:
                    self.faults.append(f"{params.uri} {params.version}: {one.code} at {at}")

    async def start(self) -> None:
        await self.client.start_io(sys.executable, "-m", "dlcheck", "lsp")
        folders = [types.WorkspaceFolder(self.folder.as_uri(), "example")]
        params = types.InitializeParams(capabilities=types.ClientCapabilities(), workspace_folders=folders)
        await self.client.initialize_async(params)
        self.client.initialized(types.InitializedParams())

    def open(self, name: str) -> None:
        path = self.folder / name
        text = path.read_bytes().decode()
        self.texts[path.as_uri()] = [text]
        item = types.TextDocumentItem(uri=path.as_uri(), language_id="python", version=0, text=text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def replace(self, uri: str, start: int, end: int, new: str) -> None:
        versions = self.texts[uri]
        old = versions[-1]
        where = types.Range(position(old, start), position(old, end))
        versions.append(old[:start] + new + old[end:])
        named = types.VersionedTextDocumentIdentifier(version=len(versions) - 1, uri=uri)
        change = types.TextDocumentContentChangePartial(range=where, text=new)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(named, [change]))

    async def settled(self) -> None:
        """Until what is shown is of the last version of each text, and stays so."""

        def is_so() -> bool:
            return all(
                uri in self.shown and self.shown[uri].version == len(found) - 1 for uri, found in self.texts.items()
            )

        for _ in range(1_200):
            if is_so():
                break
            await asyncio.sleep(0.05)
        assert is_so()
        await asyncio.sleep(2)


def split(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def position(text: str, at: int) -> types.Position:
    lines = split(text[:at])
    return types.Position(len(lines) - 1, len(lines[-1].encode("utf-16-le")) // 2)


def undo_or_change(session: Session, draw: random.Random) -> None:
    """One edit: something small somewhere, or back to the text of the beginning."""
    uri = draw.choice(list(session.texts))
    text, first = session.texts[uri][-1], session.texts[uri][0]
    if draw.random() < 0.05:
        session.replace(uri, 0, len(text), first)
        return
    start = draw.randrange(len(text) + 1)
    end = min(len(text), start + draw.choice((0, 0, 0, 1, 5, 200)))
    if "\r\n" in (text[start - 1 : start + 1], text[end - 1 : end + 1]):
        return  # a place between the two has no position
    session.replace(uri, start, end, draw.choice(PIECES))


async def play(folder: Path, edits: int) -> Session:
    session = Session(folder)
    await session.start()
    draw = random.Random(7)
    for name in FILES:
        session.open(name)
    for number in range(edits):
        undo_or_change(session, draw)
        if number % 40 == 0:
            await asyncio.sleep(draw.choice((0.0, 0.02, 0.3)))
    for uri, versions in session.texts.items():
        # Half of them as they were, half as they have become.
        if draw.random() < 0.5:
            session.replace(uri, 0, len(versions[-1]), versions[0])
    await session.settled()
    await session.client.shutdown_async(None)
    session.client.exit(None)
    await session.client.stop()  # type: ignore[no-untyped-call]
    return session


def from_the_command_line(folder: Path, session: Session) -> dict[str, list[tuple[object, int]]]:
    for uri, versions in session.texts.items():
        path = folder / uri.rpartition("/")[2]
        path.write_bytes(versions[-1].encode())
    here = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "dlcheck", "check", "--output-format", "json", *FILES]
    done = subprocess.run(command, cwd=folder, env=here, capture_output=True, text=True, check=False)
    found: dict[str, list[tuple[object, int]]] = {(folder / name).as_uri(): [] for name in FILES}
    for one in json.loads(done.stdout)["findings"]:
        found[(folder / one["path"]).as_uri()].append((one["code"], one["line"] - 1))
    return {uri: sorted(places) for uri, places in found.items()}


@pytest.mark.slow
def test_a_long_session_ends_as_the_command_line_says(tmp_path: Path) -> None:
    for file in EXAMPLE.glob("*.py"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "pyproject.toml").touch()
    session = asyncio.run(play(tmp_path, EDITS))
    assert session.faults == []
    whole = from_the_command_line(tmp_path, session)
    for uri, params in session.shown.items():
        codes = {code for code, _ in whole[uri]}
        shown = sorted((one.code, one.range.start.line) for one in params.diagnostics)
        # Of a text that does not parse what still applies is shown as well.
        assert whole[uri] == (shown if "DLC001" not in codes else [one for one in shown if one[0] == "DLC001"])
