"""Handles that each process opens for itself: the attributes that this takes are free, and hold what they held."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlcheck.config import Config
from dlcheck.engine import check
from dlcheck.fixing import fix

TEXT = """\
import h5py
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, {params}):
        {body}

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return self.{name}["x"][index]


def loader(path):
    return DataLoader(Images({given}), num_workers=2)
"""


def mended(place: Path, patch: pytest.MonkeyPatch, body: str, params: str = "path", name: str = "file") -> str:
    given = ", ".join("path" for _ in params.split(","))
    text = TEXT.format(body=body.replace("\n", "\n        "), params=params, name=name, given=given)
    (place / "pyproject.toml").touch()
    (place / "train.py").write_text(text, encoding="utf-8")
    patch.chdir(place)
    config = Config(isolated=True, overrides={"select": ["DLC304"]})
    done = fix(lambda after: check(["."], config, overlays=after), unsafe=True)
    assert not done.report.findings
    assert not done.errors
    return done.changes[0].after.decode()


@pytest.mark.parametrize(
    ("body", "slot", "opened"),
    [
        ("self.path = path\nself.file = h5py.File(path, 'r')", "_file", "h5py.File(self.path, 'r')"),
        ("self._file = path\nself.file = h5py.File(path, 'r')", "_file_handle", "h5py.File(self._file, 'r')"),
        ("self.file = h5py.File(path, 'r')\nself._file = 3", "_file_handle", "h5py.File(self.path, 'r')"),
        ("self.file = h5py.File(path, 'r')\nself._file_pid = 3", "_file_handle", "h5py.File(self.path, 'r')"),
        ("self.file = h5py.File(f'{path}/a  b', 'r')", "_file", "h5py.File(self.file_path, 'r')"),
        ("self.file = h5py.File(path + path.name, 'r')\npath = None", "_file", "h5py.File(self.file_path, 'r')"),
        ("self.file = h5py.File(path or path, 'r')\npath = 0", "_file", "h5py.File(self.path or self.path, 'r')"),
    ],
)
def test_a_handle_has_an_attribute_of_its_own(
    body: str, slot: str, opened: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = mended(tmp_path, monkeypatch, body)
    assert f"            self.{slot} = {opened}\n" in after
    assert "a  b" in after or "a  b" not in body
    compile(after, "train.py", "exec")


def test_a_handle_named_as_its_parameter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after = mended(tmp_path, monkeypatch, "self.file = h5py.File(file, 'r')", "file")
    assert "self._file_path = file\n" in after


def test_a_private_attribute_is_not_renamed_by_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "self._file = h5py.File(path, 'r')\nself.n = len(self._file)"
    after = mended(tmp_path, monkeypatch, body, name="_file")
    assert '"_file_handle": None, "_file_handle_pid": None' in after
    assert "self.__" not in after.replace("self.__dict__", "")
