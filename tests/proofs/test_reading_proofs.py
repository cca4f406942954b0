"""How datasets read their files and tables, and what samples are collated to, shown with real loaders."""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from real_workers import forkserver
from torch.utils.data import DataLoader, Dataset

COUNT = 12


# -- DLC306


class EachTime(Dataset[tuple[int, int]]):
    """A sample is how often the file was read in this process so far."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.reads = 0
        self.table: np.ndarray | None = None

    def __len__(self) -> int:
        return COUNT

    def read(self) -> np.ndarray:
        self.reads += 1
        table: np.ndarray = np.load(self.path)
        return table

    def __getitem__(self, index: int) -> tuple[int, int]:
        return self.reads, int(self.read()[index])


class Once(EachTime):
    def __getitem__(self, index: int) -> tuple[int, int]:
        if self.table is None:
            self.table = self.read()
        return self.reads, int(self.table[index])


@pytest.mark.proves("DLC306")
def test_a_file_is_read_whole_for_each_sample(tmp_path: Path) -> None:
    path = str(tmp_path / "table.npy")
    np.save(path, np.arange(COUNT))
    for dataset, reads in ((EachTime(path), COUNT - 1), (Once(path), 1)):
        loader = DataLoader(dataset, batch_size=COUNT, num_workers=1, multiprocessing_context=forkserver(), timeout=60)
        ((before, values),) = loader
        assert values.tolist() == list(range(COUNT))
        assert int(before.max()) == reads


# -- DLC307


class Listing(Dataset[str]):
    def __init__(self, root: str) -> None:
        self.root = root

    def __len__(self) -> int:
        return len(os.listdir(self.root))

    def __getitem__(self, index: int) -> str:
        return sorted(os.listdir(self.root))[index]


class Listed(Dataset[str]):
    def __init__(self, root: str) -> None:
        self.names = sorted(os.listdir(root))

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> str:
        return self.names[index]


@pytest.mark.proves("DLC307")
def test_a_folder_is_listed_for_each_sample_and_samples_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(COUNT):
        (tmp_path / f"{number:02d}").touch()
    bad, good = Listing(str(tmp_path)), Listed(str(tmp_path))
    listings: list[object] = []
    listdir = os.listdir

    def list_and_note(path: str) -> list[str]:
        listings.append(path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", list_and_note)
    assert sum(len(batch) for batch in DataLoader(bad, batch_size=4)) == COUNT
    assert len(listings) >= COUNT
    listings.clear()
    assert sum(len(batch) for batch in DataLoader(good, batch_size=4)) == COUNT
    assert not listings

    bad_before, good_before = bad[5], good[5]
    (tmp_path / "00 new").touch()
    assert bad[5] != bad_before  # another file under the same number
    assert good[5] == good_before


# -- DLC308


class Row(dict[str, Any]):
    """A row as pandas gives it: the values of all columns, in an array that can hold them all."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.dtype = np.array(list(values.values()), dtype=object).dtype


class Frame:
    """As much of pandas as a dataset uses: a column is an array, and a row is put together when it is asked for."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.columns = {name: np.asarray(values) for name, values in columns.items()}
        self.iloc = self.Rows(self.columns)

    class Rows:
        def __init__(self, columns: dict[str, np.ndarray]) -> None:
            self.columns = columns

        def __getitem__(self, index: int) -> Row:
            return Row({name: values[index] for name, values in self.columns.items()})

    def __len__(self) -> int:
        return len(self.columns["x"])

    def __getitem__(self, names: Any) -> Any:
        if isinstance(names, str):
            return self.columns[names]
        return Frame({name: self.columns[name] for name in names})

    def to_numpy(self, dtype: str) -> np.ndarray:
        return np.stack([values.astype(dtype) for values in self.columns.values()], axis=1)


# A stand-in everywhere, and pandas itself where it is installed: what holds for one must hold for the other.
FRAMES = ["stand-in", *(["pandas"] if importlib.util.find_spec("pandas") else [])]


@pytest.mark.proves("DLC308")
@pytest.mark.parametrize("library", FRAMES)
def test_a_row_becomes_a_new_series_of_objects(library: str) -> None:
    make: Any = Frame if library == "stand-in" else importlib.import_module("pandas").DataFrame
    frame = make({"x": np.arange(4.0), "label": np.arange(4), "name": list("abcd")})
    row = frame.iloc[2]
    assert row is not frame.iloc[2]  # made anew at each look
    assert row.dtype == object  # its numbers are Python objects now
    values = torch.from_numpy(frame[["x", "label"]].to_numpy("float32"))
    assert values[2].tolist() == [row["x"], row["label"]]
    same = values[2].untyped_storage().data_ptr() == values.untyped_storage().data_ptr()
    assert same  # a look into the matrix: nothing is copied

    compared = frame["x"] == 2.0
    assert len(compared) == len(frame)  # a search asks every row
    assert frame["label"][compared].tolist() == [row["label"]]


# -- DLC309


class Tokens(Dataset[dict[str, Any]]):
    def __init__(self, as_list: bool) -> None:
        self.as_list = as_list

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, object]:
        ids = list(range(16))
        return {"ids": ids if self.as_list else torch.tensor(ids), "label": index}


@pytest.mark.proves("DLC309")
def test_a_list_is_collated_to_a_tensor_for_each_position() -> None:
    def batch(as_list: bool) -> dict[str, object]:
        loader = DataLoader(
            Tokens(as_list), batch_size=2, num_workers=1, multiprocessing_context=forkserver(), timeout=60
        )
        return next(iter(loader))

    bad, good = batch(True), batch(False)
    assert isinstance(bad["ids"], list)
    assert [part.shape for part in bad["ids"]] == [(2,)] * 16
    assert not hasattr(bad["ids"], "to")
    assert isinstance(good["ids"], torch.Tensor)
    assert good["ids"].shape == (2, 16)
    assert torch.equal(torch.stack(bad["ids"], dim=1), good["ids"])


# -- DLC310


@pytest.fixture
def _always_warn() -> Iterator[None]:
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


@pytest.mark.proves("DLC310")
@pytest.mark.usefixtures("_always_warn")
def test_torch_says_itself_that_a_list_of_arrays_is_slow() -> None:
    arrays: Any = [np.full((3, 4), number, dtype=np.float32) for number in range(5)]

    def collate_list(batch: list[np.ndarray]) -> torch.Tensor:
        return torch.tensor(batch)

    def collate_stack(batch: list[np.ndarray]) -> torch.Tensor:
        return torch.from_numpy(np.stack(batch))

    with pytest.warns(UserWarning, match="list of numpy.ndarrays is extremely slow"):
        (bad,) = DataLoader(arrays, batch_size=5, collate_fn=collate_list)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (good,) = DataLoader(arrays, batch_size=5, collate_fn=collate_stack)
    assert torch.equal(bad, good)
    assert bad.dtype == good.dtype

    # What the rule takes for an array because a tensor would be an error there.
    with pytest.raises((TypeError, ValueError), match="only one element tensors"):
        torch.tensor([torch.zeros(3, 4).T, torch.zeros(3, 4).T])


# -- DLC321


class ColumnTable:
    """A table that decodes a value when it is read: a column whole, as datasets before version 4, or a row."""

    def __init__(self, columns: dict[str, list[int]]) -> None:
        self.columns = columns
        self.decoded = 0

    def _decode(self, value: int) -> int:
        self.decoded += 1
        return value

    def __getitem__(self, key: str | int) -> Any:
        if isinstance(key, str):
            return [self._decode(value) for value in self.columns[key]]
        return {name: self._decode(values[key]) for name, values in self.columns.items()}

    def select_columns(self, names: list[str]) -> ColumnTable:
        return ColumnTable({name: self.columns[name] for name in names})


class ByColumn(Dataset[int]):
    def __init__(self, table: ColumnTable) -> None:
        self.table = table

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> int:
        return int(self.table["state"][index])


class ByRow(ByColumn):
    def __getitem__(self, index: int) -> int:
        return int(self.table[index]["state"])


@pytest.mark.proves("DLC321")
def test_a_column_is_decoded_whole_for_each_row() -> None:
    table = ColumnTable({"state": list(range(COUNT)), "image": list(range(COUNT))})
    bad = ByColumn(table)
    (states,) = DataLoader(bad, batch_size=COUNT)
    assert states.tolist() == list(range(COUNT))
    assert table.decoded == COUNT * COUNT

    view = table.select_columns(["state"])
    (states,) = DataLoader(ByRow(view), batch_size=COUNT)
    assert states.tolist() == list(range(COUNT))
    assert view.decoded == COUNT
