"""Six loaders whose batches cost different things: decoding, memory, words, a mapped file, waiting, arithmetic.

Each function returns a loader as a user's would, for `dlcheck tune --factory tuning_loads:NAME`.
"""

from __future__ import annotations

import importlib
import io
import os
import random
import tempfile
import time
import zlib
from contextlib import suppress
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

Image: Any = None
with suppress(ImportError):
    Image = importlib.import_module("PIL.Image")

SIDE = 224
SAMPLES = 2048


class Images(Dataset[torch.Tensor]):
    """JPEG of 500 x 375 to 224 x 224, with Pillow; without it as many bytes, inflated by zlib."""

    def __init__(self) -> None:
        dice = random.Random(0)
        self.files = [self._file(dice) for _ in range(16)]

    def _file(self, dice: random.Random) -> bytes:
        if Image is None:
            return zlib.compress(bytes(dice.choices(range(48), k=3 * SIDE * SIDE)), 6)
        small = Image.frombytes("RGB", (25, 19), dice.randbytes(25 * 19 * 3))
        out = io.BytesIO()
        small.resize((500, 375), 3).save(out, "JPEG", quality=90)
        return out.getvalue()

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        data = self.files[index % len(self.files)]
        if Image is None:
            pixels = zlib.decompress(data)
        else:
            pixels = Image.open(io.BytesIO(data)).convert("RGB").resize((SIDE, SIDE)).tobytes()
        return torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(SIDE, SIDE, 3).float()


class Words(Dataset[torch.Tensor]):
    """Sentences to numbers: cut at spaces, looked up, padded."""

    def __init__(self) -> None:
        dice = random.Random(0)
        words = ["".join(dice.choices("abcdefghij", k=dice.randrange(2, 9))) for _ in range(2000)]
        self.known = {word: number for number, word in enumerate(words)}
        self.lines = tuple(" ".join(dice.choices(words, k=120)) for _ in range(256))

    def __len__(self) -> int:
        return 8 * SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        found = [self.known.get(word, 0) for word in self.lines[index % len(self.lines)].lower().split()]
        return torch.tensor((found + [0] * 128)[:128])


class Mapped(Dataset[torch.Tensor]):
    """Windows of 2,048 tokens of a file that is mapped, and read where they lie: the tokens, and those that follow."""

    tokens, window = 64 * 256 * 256, 2048

    def __init__(self) -> None:
        # In a folder that goes with the process that made it.
        self.file = os.path.join(tempfile.gettempdir(), "rows.bin")
        with open(self.file, "wb") as stream:
            for number in range(64):
                stream.write(random.Random(number).randbytes(4 * 256 * 256))

    def __len__(self) -> int:
        return self.tokens // self.window - 1

    def __getitem__(self, index: int) -> torch.Tensor:
        tokens = torch.from_file(self.file, shared=False, size=self.tokens, dtype=torch.int32)
        start = index * self.window
        return torch.stack([tokens[start + ahead : start + ahead + self.window].long() for ahead in (0, 1)])


class Remote(Dataset[torch.Tensor]):
    """As if read over a network: 4 ms of waiting, and hardly any work."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.004)
        return torch.zeros(3, 64, 64)


class Heavy(Dataset[torch.Tensor]):
    """Some milliseconds of arithmetic with numpy."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        import numpy

        signal = numpy.sin(numpy.arange(60_000, dtype=numpy.float64) * (1 + index))
        return torch.from_numpy(numpy.abs(numpy.fft.rfft(signal))[:4096].astype(numpy.float32))


def images() -> DataLoader[Any]:
    return DataLoader(Images(), batch_size=16, shuffle=True)


def tensors() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.zeros(16_384, 3, 32, 32)), batch_size=64, shuffle=True)


def words() -> DataLoader[Any]:
    return DataLoader(Words(), batch_size=64, shuffle=True)


def mapped() -> DataLoader[Any]:
    return DataLoader(Mapped(), batch_size=64, shuffle=True)


def remote() -> DataLoader[Any]:
    return DataLoader(Remote(), batch_size=16, shuffle=True)


def heavy() -> DataLoader[Any]:
    return DataLoader(Heavy(), batch_size=16, shuffle=True)
