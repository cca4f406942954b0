"""From a keystroke to its diagnostics, in the language server: ``python benchmarks/keystrokes.py``.

Files of 500 and 3,000 lines are typed into, one character at a time, each awaited; then a folder of 1,000 files is
opened, and the first diagnostics of one of them are awaited.  Times are those of a client in another process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from lsprotocol import types  # noqa: E402
from pygls.lsp.client import LanguageClient  # noqa: E402

TOP = "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader, Dataset\n"
PART = '''

class Samples{n}(Dataset):
    """Rows of a table, number {n}."""

    def __init__(self, path, limit=None):
        self.rows = [line.split() for line in open(path)][:limit]
        self.scale = {n} + 1.0

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        values = [float(value) for value in self.rows[index]]
        return torch.tensor(values) * self.scale


class Net{n}(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x):
        return self.layers(x).squeeze(-1)
'''
TRAINING = """

def train_{n}(path, device, epochs=3):
    loader = DataLoader(Samples{n}(path), batch_size=32, num_workers=4, pin_memory=True)
    net, total = Net{n}().to(device), 0.0
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(epochs):
        for batch in loader:
            batch = batch.to(device)
            loss = net(batch).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total
"""


def program(lines: int, parts: int = 1) -> str:
    """So many lines, with a loader and its loop in one of ``parts``."""
    text, number = TOP, 0
    while text.count("\n") < lines:
        text += PART.format(n=number) + (TRAINING.format(n=number) if number % parts == 0 else "")
        number += 1
    return text


class Client:
    """A client that is pushed to, and waits for what it typed."""

    def __init__(self) -> None:
        self.client = LanguageClient("keystrokes", "1")
        self.seen: dict[tuple[str, int | None], int] = {}
        self.news = asyncio.Event()

        @self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)  # type: ignore[untyped-decorator]
        def published(params: types.PublishDiagnosticsParams) -> None:
            self.seen[params.uri, params.version] = len(params.diagnostics)
            self.news.set()

    async def start(self, folder: Path) -> None:
        await self.client.start_io(sys.executable, "-m", "dlcheck", "lsp")
        folders = [types.WorkspaceFolder(folder.as_uri(), "project")]
        params = types.InitializeParams(capabilities=types.ClientCapabilities(), workspace_folders=folders)
        await self.client.initialize_async(params)
        self.client.initialized(types.InitializedParams())

    async def stop(self) -> None:
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await self.client.stop()  # type: ignore[no-untyped-call]

    async def until(self, uri: str, version: int) -> int:
        while (uri, version) not in self.seen:
            self.news.clear()
            await self.news.wait()
        return self.seen[uri, version]

    async def open(self, path: Path, text: str) -> float:
        start = time.perf_counter()
        item = types.TextDocumentItem(uri=path.as_uri(), language_id="python", version=0, text=text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        await self.until(path.as_uri(), 0)
        return time.perf_counter() - start

    async def type(self, path: Path, at: types.Position, version: int) -> float:
        start = time.perf_counter()
        named = types.VersionedTextDocumentIdentifier(version=version, uri=path.as_uri())
        change = types.TextDocumentContentChangePartial(range=types.Range(at, at), text="abcdefghij"[version % 10])
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(named, [change]))
        await self.until(path.as_uri(), version)
        return time.perf_counter() - start


async def typed(folder: Path, text: str, strokes: int) -> list[float]:
    """Seconds of each keystroke in a name in the middle of a file; the first ones warm up."""
    lines = text.splitlines()
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    client = Client()
    await client.start(folder)
    await client.open(path, text)
    name = "self.layers("
    middle = next(n for n, line in enumerate(lines) if name in line and n > len(lines) // 2)
    at = types.Position(middle, lines[middle].index(name) + len(name) - 1)
    found = [await client.type(path, at, version) for version in range(1, strokes + 4)]
    await client.stop()
    return found[3:]


async def first_of_many(folder: Path, files: int) -> float:
    for number in range(files):
        (folder / f"part_{number}.py").write_text(
            program(60).replace("Samples0", f"Samples_{number}"), encoding="utf-8"
        )
    client = Client()
    await client.start(folder)
    path = folder / "part_500.py"
    seconds = await client.open(path, path.read_text(encoding="utf-8"))
    await client.stop()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--strokes", type=int, default=30)
    args = parser.parse_args()
    print("| what | median ms | 90 % below |\n| --- | ---: | ---: |")
    for lines, parts in ((500, 10), (500, 1), (3_000, 10), (3_000, 1)):
        text = program(lines, parts)
        with tempfile.TemporaryDirectory() as place:
            (Path(place) / "pyproject.toml").touch()
            found = sorted(asyncio.run(typed(Path(place), text, args.strokes)))
        what = f"keystroke in {lines} lines, {text.count('DataLoader(')} loaders"
        middle, most = statistics.median(found) * 1000, found[int(len(found) * 0.9)] * 1000
        print(f"| {what} | {middle:.0f} | {most:.0f} |", flush=True)
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "pyproject.toml").touch()
        print(
            f"| first diagnostics among 1,000 files | {asyncio.run(first_of_many(Path(place), 1_000)) * 1000:.0f} | |"
        )


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = str(HERE.parent)
    main()
