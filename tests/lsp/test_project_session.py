"""A session in a project of two files, both open: each changes in its buffer and on disk, and findings follow."""

from __future__ import annotations

import ast
import asyncio
import random
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_lsp
from editing import CLIENTS, LOAD, TRAIN, Editor, capabilities, edited, opened, start
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient

from dlcheck import config, engine

SERVER = [sys.executable, "-m", "dlcheck", "lsp"]
ROUNDS = 30
EDITS = 5
# A class, so that what is kept of a text is kept in its lines too.
DATA = """

class Data:
    def __getitem__(self, index):
        return self.items[index]

    def __len__(self):
        return len(self.items)


class Trainer:
    def loader(self, dataset):
        return DataLoader(dataset, num_workers=2, pin_memory=True)

    def run(self, dataset):
        for x in self.loader(dataset):
            x.cuda()
"""
TEXTS = {"load.py": LOAD + DATA, "train.py": TRAIN}
SWAPS = [
    (", pin_memory=True", ", pin_memory=False"),
    (", pin_memory=True", ""),
    ("num_workers=2", "num_workers=0"),
    ("batch_size=8", "batch_size=None"),
    ("x.cuda()", "x.cuda(non_blocking=True)"),
    ("def load(", "def loads("),
    ("    def run(", "    # größer 🐍\n\n    def run("),
    ("return self.items[index]", "return self.items[index].cuda()"),
    ("import torch\n", "import torch\n\n\nclass Net:\n    pass\n\n\n"),
    ("for x in loader:", "for x in load(dataset):"),
    ("return DataLoader(", "return DataLoader(("),
    ("class Data:", "class Data(object):"),
]
pytestmark = [pytest.mark.slow, pytest.mark.asyncio]


@pytest_lsp.fixture(params=CLIENTS, config=ClientServerConfig(server_command=SERVER))  # type: ignore[untyped-decorator]
async def client(request: pytest.FixtureRequest, lsp_client: LanguageClient, tmp_path: Path) -> AsyncIterator[None]:
    (tmp_path / "pyproject.toml").touch()
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    await start(lsp_client, capabilities(request.param), [tmp_path])
    yield
    await lsp_client.shutdown_session()


class Session:
    """The buffers of an editor, and the files below them."""

    def __init__(self, editor: Editor) -> None:
        self.editor = editor
        self.buffers: dict[str, str] = {}
        self.done: dict[str, list[tuple[int, str, str]]] = {}  # what would undo each change
        self.version = 0
        self.draw = random.Random(11)

    def opens(self, name: str) -> None:
        self.buffers[name] = (self.editor.folder / name).read_text(encoding="utf-8")
        self.done[name] = []
        self.version += 1
        self.editor.client.text_document_did_open(opened(self.editor.folder / name, self.buffers[name], self.version))

    def changes(self, name: str) -> None:
        """Something is replaced by something else, or put back."""
        done, old = self.done[name], self.buffers[name]
        if done and self.draw.random() < 0.4:
            self.undoes(name)
            return
        before, after = self.draw.choice([pair for pair in SWAPS if pair[0] in old])
        at = self.draw.choice([n for n in range(len(old)) if old.startswith(before, n)])
        done.append((at, after, before))
        self._replaces(name, at, before, after)

    def undoes(self, name: str) -> None:
        self._replaces(name, *self.done[name].pop())

    def _replaces(self, name: str, at: int, before: str, after: str) -> None:
        old = self.buffers[name]
        self.buffers[name] = old[:at] + after + old[at + len(before) :]
        self.version += 1
        where = types.Range(self._position(old, at), self._position(old, at + len(before)))
        change = types.TextDocumentContentChangePartial(range=where, text=after)
        self.editor.client.text_document_did_change(edited(self.editor.folder / name, self.version, change))

    def mends(self, name: str) -> None:
        """Undo until it parses."""
        while self.done[name] and not parses(self.buffers[name]):
            self.undoes(name)

    def _position(self, text: str, at: int) -> types.Position:
        lines = text[:at].split("\n")
        return types.Position(len(lines) - 1, self.editor.units(lines[-1]))

    def saves(self, name: str) -> None:
        self.editor.saves(self.editor.folder / name, self.buffers[name])

    def closes_and_rewrites(self, name: str) -> None:
        """Another program writes a file, first while it is open, then while it is not."""
        path = self.editor.folder / name
        self.editor.saves(path, self.buffers[name].replace("pin_memory=True", "pin_memory=False"))
        self.editor.closes(path)
        del self.buffers[name]
        self.editor.saves(path, TEXTS[name])

    def expected(self) -> dict[str, list[tuple[str, int]]]:
        """What one run says of the buffers, with nothing kept from before."""
        folder = self.editor.folder
        overlays = {str(folder / name): text.encode() for name, text in self.buffers.items()}
        report = engine.check([str(folder / name) for name in TEXTS], config.load(str(folder)), overlays=overlays)
        found: dict[str, list[tuple[str, int]]] = {name: [] for name in self.buffers}
        for one in report.findings:
            name = Path(one.place.path).name
            if name in found:
                found[name].append((one.code, one.place.line - 1))
        return found


def parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


@pytest.fixture
def editor(client: LanguageClient, tmp_path: Path) -> Editor:
    assert client.capabilities is not None
    general = client.capabilities.general
    return Editor(client, tmp_path, "utf-8" if general is not None and general.position_encodings else "utf-16")


async def test_findings_follow_both_files_in_their_buffers_and_on_disk(editor: Editor) -> None:
    session = Session(editor)
    names = list(TEXTS)
    for name in names:
        session.opens(name)
    for number in range(ROUNDS):
        for _ in range(EDITS):
            session.changes(session.draw.choice(names))
        last: list[Callable[[str], None]] = [session.mends, session.mends, session.saves, session.closes_and_rewrites]
        for name in names if number % 4 else ():
            session.mends(name)
        name = names[number % 2]
        session.draw.choice(last)(name)
        await agrees(session)
        if name not in session.buffers:
            session.opens(name)


async def agrees(session: Session) -> None:
    """Until what is shown of each open file is what one run says; of one that does not parse, that it does not."""
    shown = session.editor.codes
    expected = session.expected()

    def is_so() -> bool:
        for name, found in expected.items():
            now = shown((session.editor.folder / name).as_uri())
            unreadable = [one for one in found if one[0] == "DLC001"]
            if now != found and (not unreadable or now[:1] != unreadable):
                return False
        return True

    try:
        await session.editor.until(is_so)
    except asyncio.TimeoutError:
        assert {name: shown((session.editor.folder / name).as_uri()) for name in expected} == expected
