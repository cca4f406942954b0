"""Training frameworks: what each does by itself is passed over, what it leaves to its user is checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlcheck import engine
from dlcheck.config import Config

PHOTOS = """
from PIL import Image
from torch.utils.data import DataLoader, Dataset, DistributedSampler

class Photos(Dataset):
    def __init__(self, paths):
        self.paths = paths
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, index):
        return Image.open(self.paths[index])
"""

ARCHIVE = """
import io
import zipfile
import numpy as np
from torch.utils.data import DataLoader, Dataset

class Archive(Dataset):
    def __init__(self, path):
        self.archive = zipfile.ZipFile(path)
        self.names = self.archive.namelist()
    def __len__(self):
        return len(self.names)
    def __getitem__(self, index):
        return np.load(io.BytesIO(self.archive.read(self.names[index])))
"""

DATA_MODULE = """
import {lightning} as pl

class Data(pl.LightningDataModule):
    def __init__(self, train_set, val_set):
        super().__init__()
        self.train_set, self.val_set = train_set, val_set
    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=32, shuffle=True, {options})
    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=32, {options})

def main(net, paths):
    pl.Trainer({trainer}).fit(net, datamodule=Data(Photos(paths), Photos(paths)))
"""


def found(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, **others: str) -> list[tuple[str, str]]:
    """The findings of all rules that are on: the code, and the line of the source, without blanks around it."""
    monkeypatch.chdir(folder)
    for name, content in {"train": text, **others}.items():
        (folder / f"{name}.py").write_text(content, encoding="utf-8")
    report = engine.check(["."], Config())
    assert not report.errors
    texts = {path: source.text.splitlines() for path, source in report.sources.items()}
    return [(one.code, texts[one.place.path][one.place.line - 1].strip()) for one in report.findings]


def codes(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, **others: str) -> list[str]:
    return sorted(code for code, _ in found(folder, monkeypatch, text, **others))


def data_module(*, options: str = "num_workers=4", trainer: str = "max_epochs=10", lightning: str = "lightning") -> str:
    return PHOTOS + DATA_MODULE.format(options=options, trainer=trainer, lightning=lightning)


# -- Lightning


@pytest.mark.parametrize("lightning", ["lightning", "lightning.pytorch", "pytorch_lightning"])
def test_lightning_leaves_the_workers_to_its_user(
    lightning: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = data_module(options="num_workers=0", lightning=lightning)
    line = "return DataLoader(self.train_set, batch_size=32, shuffle=True, num_workers=0)"
    assert found(tmp_path, monkeypatch, text) == [("DLC201", line)]


def test_lightning_starts_workers_again_in_each_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "return DataLoader(self.train_set, batch_size=32, shuffle=True, num_workers=4)"
    assert found(tmp_path, monkeypatch, data_module()) == [("DLC202", line)]


@pytest.mark.parametrize(
    "trainer", ["max_epochs=1", "max_steps=1000", "fast_dev_run=True", "reload_dataloaders_every_n_epochs=1"]
)
def test_workers_of_one_epoch_need_not_stay(trainer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert codes(tmp_path, monkeypatch, data_module(trainer=trainer)) == []


def test_a_trainer_in_another_file_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, _, _ = data_module().partition("def main")
    main = """
import lightning as pl
from data import Data, Photos

def main(net, paths, epochs):
    pl.Trainer(max_epochs=EPOCHS).fit(net, datamodule=Data(Photos(paths), Photos(paths)))
"""
    assert codes(tmp_path, monkeypatch, main.replace("EPOCHS", "50"), data=data) == ["DLC202"]
    assert codes(tmp_path, monkeypatch, main.replace("EPOCHS", "epochs"), data=data) == []


def test_persistent_workers_of_a_data_module_are_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert codes(tmp_path, monkeypatch, data_module(options="num_workers=4, persistent_workers=True")) == []


def test_options_of_a_data_module_are_those_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = data_module(options="persistent_workers=True, num_workers=0", trainer="max_epochs=1")
    assert codes(tmp_path, monkeypatch, text) == ["DLC201", "DLC203", "DLC203"]


def test_datasets_of_a_data_module_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        ARCHIVE
        + """
import lightning as pl

class Net(pl.LightningModule):
    def __init__(self, path):
        super().__init__()
        self.path = path
    def setup(self, stage):
        self.dataset = Archive(self.path)
    def train_dataloader(self):
        return DataLoader(self.dataset, batch_size=32, num_workers=4, persistent_workers=True)
"""
    )
    assert found(tmp_path, monkeypatch, text) == [("DLC304", "self.archive = zipfile.ZipFile(path)")]


def test_a_loader_given_to_fit_is_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        PHOTOS
        + """
import lightning as pl

def main(net, paths):
    train_loader = DataLoader(Photos(paths), batch_size=32, shuffle=True)
    val_loader = DataLoader(Photos(paths), batch_size=32)
    trainer = pl.Trainer(max_epochs=10)
    trainer.fit(net, train_loader, val_loader)
"""
    )
    line = "train_loader = DataLoader(Photos(paths), batch_size=32, shuffle=True)"
    assert found(tmp_path, monkeypatch, text) == [("DLC201", line)]


def test_lightning_moves_batches_and_shards_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
import lightning as pl
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

class Net(pl.LightningModule):
    def __init__(self, dataset):
        super().__init__()
        self.dataset, self.layer = dataset, nn.Linear(8, 8)
        self.automatic_optimization = False
    def train_dataloader(self):
        sampler = DistributedSampler(self.dataset)
        return DataLoader(
            self.dataset, sampler=sampler, num_workers=4, pin_memory=True, persistent_workers=True
        )
    def val_dataloader(self):
        return DataLoader(self.dataset, num_workers=4, persistent_workers=True)
    def training_step(self, batch, index):
        loss = self.layer(batch.to(self.device)).mean()
        self.manual_backward(loss)
        self.log("loss", loss)
        return loss
    def validation_step(self, batch, index):
        return self.layer(batch.to("cuda")).mean()
"""
    assert codes(tmp_path, monkeypatch, text) == []


def test_fabric_moves_batches_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
from lightning.fabric import Fabric
from torch.utils.data import DataLoader

def main(net, dataset, optimizer):
    fabric = Fabric(accelerator="cuda")
    net, optimizer = fabric.setup(net, optimizer)
    loader = fabric.setup_dataloaders(DataLoader(dataset, num_workers=4, pin_memory=True, OPTIONS))
    for epoch in range(10):
        for images in loader:
            loss = net(images.to("cuda"))
            fabric.backward(loss)
            optimizer.step()
"""
    silent = text.replace("OPTIONS", "persistent_workers=True")
    assert codes(tmp_path, monkeypatch, silent) == []
    assert codes(tmp_path, monkeypatch, text.replace("OPTIONS", "shuffle=True")) == ["DLC202"]


# -- Accelerate


ACCELERATE = """
from accelerate import Accelerator, DataLoaderConfiguration

def main(net, dataset, optimizer):
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(non_blocking=True))
    loader = DataLoader(DATASET, batch_size=32, OPTIONS)
    net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    for epoch in range(10):
        for images in loader:
            loss = net(images.to(accelerator.device))
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
"""


def accelerate(*, dataset: str = "dataset", options: str) -> str:
    return PHOTOS + ACCELERATE.replace("DATASET", dataset).replace("OPTIONS", options)


def test_accelerate_moves_and_shards_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sharded = "sampler=DistributedSampler(dataset), num_workers=4, persistent_workers=True"
    pinned = "shuffle=True, num_workers=4, persistent_workers=True, pin_memory=True"
    for options in (sharded, pinned):
        assert codes(tmp_path, monkeypatch, accelerate(options=options)) == []


def test_accelerate_leaves_the_workers_to_its_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert codes(tmp_path, monkeypatch, accelerate(options="shuffle=True, num_workers=4")) == ["DLC202"]
    alone = accelerate(dataset="Photos(dataset)", options="shuffle=True")
    assert codes(tmp_path, monkeypatch, alone) == ["DLC201"]


def test_accelerate_does_not_switch_gradients_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
from accelerate import Accelerator
from torch.utils.data import DataLoader

def train(net, dataset, optimizer):
    accelerator = Accelerator()
    net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(dataset, batch_size=32, shuffle=True))
    total = 0
    for images in loader:
        loss = net(images)
        accelerator.backward(loss)
        total += loss
    return total
"""
    assert codes(tmp_path, monkeypatch, text) == ["DLC503"]


# -- torchdata, PyG, MONAI: loaders of their own, of torch's kind


def test_stateful_loader_is_a_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        PHOTOS
        + """
from torchdata.stateful_dataloader import StatefulDataLoader

def main(net, paths):
    empty = StatefulDataLoader(Photos(paths), batch_size=32, prefetch_factor=4, snapshot_every_n_steps=10)
    loader = StatefulDataLoader(Photos(paths), batch_size=32, num_workers=4, pin_memory=True)
    for epoch in range(10):
        for images in loader:
            net(images.cuda()).backward()
        loader.state_dict()
    return empty
"""
    )
    assert codes(tmp_path, monkeypatch, text) == ["DLC101", "DLC202", "DLC203"]


def test_loaders_of_graphs_have_options_like_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
from torch_geometric.loader import DataLoader, NeighborLoader

def main(net, dataset, data):
    graphs = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=4, pin_memory=True)
    parts = NeighborLoader(data, num_neighbors=[10, 10], batch_size=128, persistent_workers=True)
    for epoch in range(10):
        for graph in graphs:
            net(graph.to("cuda")).backward()
    return parts
"""
    assert codes(tmp_path, monkeypatch, text) == ["DLC202", "DLC203"]


def test_evaluation_of_graphs_wants_no_gradients_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
from torch_geometric.loader import DataLoader

def test(model, dataset):
    model.eval()
    correct = 0
    for data in DataLoader(dataset, batch_size=32):
        correct += model(data.to("cuda")).max(1)[1].eq(data.y).sum().item()
    return correct
"""
    assert codes(tmp_path, monkeypatch, text) == ["DLC505"]


def test_loaders_of_monai_take_workers_by_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
from monai.data import CacheDataset, DataLoader

def main(net, files, transform):
    dataset = CacheDataset(files, transform)
    loader = DataLoader(dataset, 4, batch_size=2, shuffle=True, pin_memory=True)
    for epoch in range(10):
        for batch in loader:
            net(batch["image"].to("cuda", non_blocking=True)).backward()
    return DataLoader(dataset, 0, batch_size=2, persistent_workers=True)
"""
    assert codes(tmp_path, monkeypatch, text) == ["DLC202", "DLC203"]


# -- Hugging Face


def test_the_trainer_pins_and_moves_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
from datasets import load_dataset
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

def main(model, tokenizer):
    arguments = TrainingArguments(
        "out", dataloader_num_workers=4, dataloader_persistent_workers=True, dataloader_prefetch_factor=4
    )
    dataset = load_dataset("imdb", split="train")
    Trainer(model, args=arguments, train_dataset=dataset, data_collator=DataCollatorWithPadding(tokenizer)).train()
"""
    assert codes(tmp_path, monkeypatch, text) == []


def test_a_trainer_of_the_project_keeps_the_meaning_of_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        PHOTOS
        + """
from transformers import Trainer, TrainingArguments

class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        return model(**inputs).loss

def main(model, paths):
    arguments = TrainingArguments("out", num_train_epochs=3)
    WeightedTrainer(model=model, args=arguments, train_dataset=Photos(paths)).train()
"""
    )
    line = 'arguments = TrainingArguments("out", num_train_epochs=3)'
    assert found(tmp_path, monkeypatch, text) == [("DLC701", line)]
