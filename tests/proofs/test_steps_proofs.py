"""What a training step keeps and does: graphs that pile up, gradients nobody asked for, work in the wrong process."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from real_workers import forkserver
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

LIMIT = 60  # seconds after which a loader gives up


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def batches(steps: int) -> DataLoader[Any]:
    torch.manual_seed(0)
    return DataLoader(TensorDataset(torch.randn(4 * steps, 8), torch.randint(3, (4 * steps,))), batch_size=4)


# -- DLC502


def train(net: nn.Module, loader: DataLoader[Any], *, collect: bool) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for images, labels in loader:
        loss = nn.functional.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        if collect:
            gc.collect()
    gc.collect()


@pytest.mark.proves("DLC502")
def test_each_call_in_the_loop_looks_at_all_objects_again(net: nn.Module) -> None:
    whole: list[int] = []

    def count(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            whole.append(info["generation"])

    gc.disable()
    gc.callbacks.append(count)
    try:
        train(net, batches(3), collect=True)
        in_the_loop = len(whole)
        train(net, batches(3), collect=False)
        after_it = len(whole) - in_the_loop
    finally:
        gc.callbacks.remove(count)
        gc.enable()
    assert (in_the_loop, after_it) == (4, 1)


@pytest.mark.proves("DLC502")
def test_tensors_need_no_collector(net: nn.Module) -> None:
    gc.disable()
    try:
        losses = []
        for images, labels in batches(10):
            loss = nn.functional.cross_entropy(net(images), labels)
            torch.autograd.backward(loss)
            losses.append(weakref.ref(loss))
        del loss
        assert [known() for known in losses] == [None] * 10
    finally:
        gc.enable()


# -- DLC503


def accumulate(net: nn.Module, loader: DataLoader[Any], *, detach: bool) -> torch.Tensor:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    total = torch.zeros(())
    for images, labels in loader:
        loss = nn.functional.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        total += loss.detach() if detach else loss
    return total


def nodes_behind(tensor: torch.Tensor) -> int:
    """How many operations of autograd's graph a tensor keeps alive."""
    seen: set[Any] = set()
    todo = [tensor.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [following for following, _ in node.next_functions]
    return len(seen)


@pytest.mark.proves("DLC503")
def test_a_total_keeps_the_graph_of_every_step(net: nn.Module) -> None:
    short, long = (nodes_behind(accumulate(net, batches(steps), detach=False)) for steps in (10, 40))
    assert long > 3 * short > 100
    assert nodes_behind(accumulate(net, batches(40), detach=True)) == 0


@pytest.mark.proves("DLC503")
def test_detached_losses_add_up_to_the_same(net: nn.Module) -> None:
    state = {name: value.clone() for name, value in net.state_dict().items()}
    kept = accumulate(net, batches(10), detach=False)
    net.load_state_dict(state)
    assert torch.equal(kept.detach(), accumulate(net, batches(10), detach=True))


@pytest.mark.proves("DLC503")
def test_on_the_cpu_a_loss_keeps_its_graph(net: nn.Module) -> None:
    losses = []
    for images, labels in batches(3):
        loss = nn.functional.cross_entropy(net(images), labels)
        torch.autograd.backward(loss)
        losses.append((loss.cpu(), loss.detach(), loss.item()))
    assert all(nodes_behind(moved) > 0 and nodes_behind(detached) == 0 for moved, detached, _ in losses)


# -- DLC505


def evaluate(net: nn.Module, loader: DataLoader[Any]) -> int:
    net.eval()
    hits = 0
    for images, labels in loader:
        hits += int((net(images).argmax(1) == labels).sum())
    return hits


@pytest.mark.proves("DLC505")
def test_evaluation_mode_saves_tensors_for_a_backward_pass(net: nn.Module) -> None:
    saved: list[int] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.nbytes)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        hits = evaluate(net, batches(5))
        recorded = len(saved)
        again = torch.no_grad()(evaluate)(net, batches(5))
    assert recorded >= 5  # something in each round
    assert len(saved) == recorded
    assert hits == again


# -- DLC506


def prepare(texts: tuple[str, ...]) -> tuple[torch.Tensor, int]:
    """A stand-in for a tokenizer: numbers, and the process that made them."""
    return torch.tensor([[float(ord(letter)) for letter in text] for text in texts]), os.getpid()


class Texts(Dataset[str]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> str:
        return f"{index:08}"


def collate(samples: list[str]) -> tuple[torch.Tensor, int]:
    return prepare(tuple(samples))


def collate_plain(samples: list[str]) -> tuple[str, ...]:
    return tuple(samples)


@pytest.mark.proves("DLC506")
def test_work_in_the_loop_is_done_by_the_training_process(net: nn.Module) -> None:
    options: dict[str, Any] = {"num_workers": 1, "multiprocessing_context": forkserver(), "timeout": LIMIT}
    in_the_loop, in_the_workers = set(), set()
    for texts in DataLoader(Texts(), batch_size=4, collate_fn=collate_plain, **options):
        inputs, pid = prepare(texts)
        torch.autograd.backward(net(inputs).sum())
        in_the_loop.add(pid)
    for inputs, pid in DataLoader(Texts(), batch_size=4, collate_fn=collate, **options):
        torch.autograd.backward(net(inputs).sum())
        in_the_workers.add(pid)
    assert in_the_loop == {os.getpid()}
    assert os.getpid() not in in_the_workers


# -- DLC701: the trainer itself is not installed where this runs; what it does with its arguments is


@dataclass
class Arguments:
    """The defaults of transformers.TrainingArguments, as its source has them (5.24)."""

    dataloader_num_workers: int = 0
    dataloader_persistent_workers: bool = False
    dataloader_prefetch_factor: int | None = None
    num_train_epochs: int = 3


def loader_of(arguments: Arguments) -> DataLoader[Any]:
    """What ``Trainer.get_train_dataloader`` builds from its arguments."""
    return DataLoader(
        Texts(),
        batch_size=4,
        collate_fn=collate,
        num_workers=arguments.dataloader_num_workers,
        persistent_workers=arguments.dataloader_persistent_workers,
        prefetch_factor=arguments.dataloader_prefetch_factor,
        multiprocessing_context=forkserver() if arguments.dataloader_num_workers else None,
        timeout=LIMIT if arguments.dataloader_num_workers else 0,
    )


def pids_of_epochs(arguments: Arguments) -> Iterator[set[int]]:
    loader = loader_of(arguments)
    for _ in range(arguments.num_train_epochs):
        yield {pid for _, pid in loader}


@pytest.mark.proves("DLC701")
def test_by_default_the_training_process_makes_the_batches() -> None:
    assert list(pids_of_epochs(Arguments())) == [{os.getpid()}] * 3


@pytest.mark.proves("DLC701")
def test_workers_of_a_trainer_start_again_in_each_epoch() -> None:
    anew = list(pids_of_epochs(Arguments(dataloader_num_workers=1)))
    assert len(set.union(*anew)) == 3
    kept = list(pids_of_epochs(Arguments(dataloader_num_workers=1, dataloader_persistent_workers=True)))
    assert len(set.union(*kept)) == 1


@pytest.mark.proves("DLC701")
def test_prefetching_without_workers_is_an_error() -> None:
    with pytest.raises(ValueError, match="prefetch_factor"):
        loader_of(Arguments(dataloader_prefetch_factor=2))
