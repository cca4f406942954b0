"""Stand-ins: shaped as the program's own data are, as far as these are known, and no larger than the machine bears."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from dlcheck_worker import datasets, facts, residency

from dlcheck import engine
from dlcheck.config import Config
from dlcheck.findings import Finding, Place
from dlcheck.measure import machine
from dlcheck.measure.plan import Plan, plan, too_large
from dlcheck.measure.record import Fact
from dlcheck.measure.template import Subject

PROGRAM = """
    import argparse
    from torch.utils.data import DataLoader
    from torchvision import datasets, transforms

    def train(loader, model, optimizer):
        for images, labels in loader:
            model(images).sum().backward()
            optimizer.step()

    def main(model, optimizer):
        parser = argparse.ArgumentParser()
        parser.add_argument("--epochs", type=int, default=14)
        args = parser.parse_args()
        transform = transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])
        dataset = datasets.ImageFolder("images", transform=transform)
        loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)
        for epoch in range(1, EPOCHS + 1):
            train(loader, model, optimizer)
"""
IMAGE = {"shape": [3, 224, 224], "dtype": "float32", "bytes": 4 * 3 * 224 * 224}


def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epochs: str) -> dict[str, Any]:
    """What the finding about persistent workers says of its loader."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(dedent(PROGRAM).replace("EPOCHS", epochs))
    report = engine.check(["train.py"], Config(), with_subjects=True)
    return next(one.measure for one in report.findings if one.code == "DLC202")


def planned(code: str, measure: dict[str, Any], **how: Any) -> Plan:
    place = Place("train.py", 3, 1, 3, 9)
    finding = Finding(code, "rule", "warning", "high", place, "message", measure=measure)
    found = plan(Subject(finding, measure, cores=4, start_method="fork", **how))
    assert isinstance(found, Plan)
    return found


def test_samples_are_as_the_transform_makes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = described(tmp_path, monkeypatch, "args.epochs")
    assert measure["sample"] == [IMAGE]
    found = planned("DLC202", measure)
    assert found.workload["dataset"] == Fact({"kind": "shaped", "arrays": [IMAGE]}, "static")
    image, label = datasets.make({**found.template.dataset, "size": 2})[1]
    assert (image.shape, image.dtype, label) == ((3, 224, 224), torch.float32, 1)


@pytest.mark.parametrize(
    ("written", "epochs", "free"), [("args.epochs", 14, True), ("9", 9, False), ("len(x)", None, None)]
)
def test_epochs_are_those_that_the_program_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, epochs: int | None, free: bool | None
) -> None:
    measure = described(tmp_path, monkeypatch, written)
    assert (measure.get("epochs"), measure.get("epochs_free")) == (epochs, free)


def test_a_command_may_ask_for_another_number_of_epochs() -> None:
    known = {"epochs": 14, "epochs_free": True}
    assert planned("DLC202", known).workload["epochs"] == Fact(14, "static")
    assert "epochs" not in planned("DLC202", known, live={"num_workers": 2, "batch_size": 4}).workload
    fixed = {"epochs": 14, "epochs_free": False}
    assert "epochs" in planned("DLC202", fixed, live={"num_workers": 2, "batch_size": 4}).workload


def test_a_stream_stands_for_a_stream() -> None:
    assert planned("DLC202", {"streams": True}).template.dataset["kind"] == "stream"


def test_batches_that_would_not_fit_are_not_made() -> None:
    measure = {"options": {"batch_size": 256, "num_workers": 8}, "sample": [IMAGE]}
    found = planned("DLC202", measure)
    room = {"available_memory": 64 << 30, "shm_free": 64 << 30}
    assert too_large(found, room) == ""
    assert "/dev/shm" in too_large(found, {**room, "shm_free": 64 << 20})
    assert "in memory" in too_large(found, {**room, "available_memory": 1 << 30})
    assert "on 64 ranks do not fit" in too_large(found, room, 64)
    assert too_large(planned("DLC202", {"options": measure["options"]}), {"shm_free": 1}) == ""


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    """A file that is on the disk and not in memory."""
    path = tmp_path / "cold.bin"
    path.write_bytes(os.urandom(8 << 20))
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if residency.resident(str(path)) != 0.0:
        pytest.skip("this file system keeps its files in memory")
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="mincore as Linux has it")
def test_files_are_seen_before_they_are_read(cold: Path) -> None:
    class Files(torch.utils.data.Dataset[int]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            return len(cold.read_bytes())

    class Source:
        dataset = Files()

        def options(self) -> dict[str, Any]:
            return {}

    first, second = facts.of(Source(), 1.0), facts.of(Source(), 1.0)
    assert first["page_cache"] == {"files": 1, "resident": 0.0}
    assert second["page_cache"] == {"files": 1, "resident": 1.0}


def test_a_cold_dataset_is_told() -> None:
    def status(resident: float) -> list[str]:
        workload = {"page_cache": Fact({"files": 12, "resident": resident}, "measured")}
        return [guard.status for guard in machine.cache_guard(workload)]

    assert (status(0.3), status(1.0), machine.cache_guard({})) == (["warn"], ["pass"], [])
