"""What only works under fork: each fault under a forkserver, and its absence."""

from __future__ import annotations

import functools
import pickle
import runpy
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from real_workers import forkserver
from torch.utils.data import DataLoader, Dataset


class Program:
    """Runs texts as ``python FILE`` runs them: as ``__main__``, which workers that are not forked import again."""

    def __init__(self, file: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.file = file
        self.capture = capture
        forkserver()

    def run(self, text: str) -> str:
        """What it prints."""
        self.file.write_text(text, encoding="utf-8")
        self.capture.readouterr()
        runpy.run_path(str(self.file), run_name="__main__")
        return self.capture.readouterr().out


@pytest.fixture
def program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(tmp_path / "train.py", capsys)


# -- DLC601

SCRIPT = """
from torch.utils.data import DataLoader


def train():
    loader = DataLoader(list(range(4)), num_workers=1, multiprocessing_context={method!r})
    print([int(batch) for batch in loader])


try:
    {call}
except RuntimeError as error:
    with open(__file__ + "." + __name__, "w") as file:
        file.write(str(error))
    raise
"""
BARE = "train()"
GUARDED = 'if __name__ == "__main__": train()'


@pytest.mark.proves("DLC601")
def test_a_script_without_a_guard_cannot_start_its_workers(program: Program) -> None:
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        program.run(SCRIPT.format(method="forkserver", call=BARE))
    of_worker = program.file.with_name("train.py.__mp_main__").read_text(encoding="utf-8")
    assert "bootstrapping phase" in of_worker
    assert program.run(SCRIPT.format(method="forkserver", call=GUARDED)) == "[0, 1, 2, 3]\n"
    assert program.run(SCRIPT.format(method="fork", call=BARE)) == "[0, 1, 2, 3]\n"


# -- DLC602 and DLC603


class Numbers(Dataset[Any]):
    def __init__(self, transform: Callable[[int], int] | None = None, kept: object = None) -> None:
        self.transform = transform
        self.kept = kept

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return self.transform(index) if self.transform else index


class Stateful(Numbers):
    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "kept": None}


def double(number: int) -> int:
    return 2 * number


def merge(rows: list[int], last: bool) -> int:
    return rows[-1] if last else rows[0]


def batches(method: object, dataset: Dataset[Any], **options: Any) -> list[Any]:
    return list(DataLoader(dataset, batch_size=2, num_workers=1, multiprocessing_context=method, **options))


NOT_PICKLED = pytest.mark.filterwarnings("ignore:Got pickle error:UserWarning")  # torch's hint beside the error


@NOT_PICKLED
@pytest.mark.proves("DLC602")
def test_functions_without_a_name_reach_forked_workers_only() -> None:
    def local(rows: list[int]) -> int:
        return rows[-1]

    class Local(Numbers):
        pass

    for collate in (lambda rows: rows[-1], local, functools.partial(local)):
        assert batches("fork", Numbers(), collate_fn=collate) == [1, 3]
        with pytest.raises((AttributeError, pickle.PicklingError), match=r"[Cc]an't (pickle|get)|<lambda>"):
            batches(forkserver(), Numbers(), collate_fn=collate)
    for dataset in (Local(), Numbers(lambda number: 2 * number)):
        assert len(batches("fork", dataset)) == 2
        with pytest.raises((AttributeError, pickle.PicklingError), match=r"[Cc]an't (pickle|get)|<lambda>"):
            batches(forkserver(), dataset)
    named = batches(forkserver(), Numbers(double), collate_fn=functools.partial(merge, last=True))
    assert named == [2, 6]


@NOT_PICKLED
@pytest.mark.proves("DLC603")
def test_locks_and_generators_reach_forked_workers_only() -> None:
    for kept in (threading.Lock(), threading.Event(), (number for number in (1, 2))):
        assert len(batches("fork", Numbers(kept=kept))) == 2
        with pytest.raises(TypeError, match="cannot pickle"):
            batches(forkserver(), Numbers(kept=kept))
        assert len(batches(forkserver(), Stateful(kept=kept))) == 2
    assert len(batches("fork", Numbers(kept=torch.Generator()))) == 2
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        batches(forkserver(), Numbers(kept=torch.Generator()))


# -- DLC604

GLOBALS = """
from torch.utils.data import DataLoader, Dataset

step = 1


class Numbers(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index * {step}


if __name__ == "__main__":
    step = late = 3
    print([int(batch) for batch in DataLoader(Numbers(), num_workers=1, multiprocessing_context={method!r})])
"""


@pytest.mark.proves("DLC604")
def test_globals_of_the_main_process_are_old_or_missing_in_other_workers(program: Program) -> None:
    assert program.run(GLOBALS.format(method="fork", step="step")) == "[0, 3, 6, 9]\n"
    assert program.run(GLOBALS.format(method="forkserver", step="step")) == "[0, 1, 2, 3]\n"
    with pytest.raises(NameError, match="name 'late' is not defined"):
        program.run(GLOBALS.format(method="forkserver", step="late"))
