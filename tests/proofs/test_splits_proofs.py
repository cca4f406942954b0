"""Proofs of the rules about splits and samplers: what is drawn, what is counted, what crashes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from real_workers import run_scripts
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

CLASSES = 10
THOUSAND: Any = range(1000)  # as good a dataset as any
NUMBERS: Any = range(64)


class Labelled(Dataset[tuple[torch.Tensor, int]]):
    """Samples that lie class by class, and are nothing but their label."""

    def __init__(self, count: int) -> None:
        self.targets = [index * CLASSES // count for index in range(count)]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return nn.functional.one_hot(torch.tensor(self.targets[index]), CLASSES).float(), self.targets[index]


def seen(loader: DataLoader[Any]) -> int:
    return sum(len(labels) for _, labels in loader)


SPLITS = """
import torch
from torch.utils.data import random_split

print(random_split(range(1000), [900, 100])[1].indices)
print(random_split(range(1000), [900, 100], generator=torch.Generator().manual_seed(42))[1].indices)
"""


@pytest.mark.proves("DLC408")
def test_every_start_makes_another_split() -> None:
    first, second = (printed.splitlines() for printed in run_scripts(SPLITS, 2))
    assert first[0] != second[0]
    assert first[1] == second[1]


@pytest.mark.proves("DLC408")
def test_other_seeds_do_not_reach_the_split() -> None:
    def split() -> list[int]:
        np.random.seed(0)
        torch.cuda.manual_seed_all(0)
        return list(random_split(THOUSAND, [900, 100])[1].indices)

    with torch.random.fork_rng():
        assert split() != split()
        first, again = split(), set(random_split(THOUSAND, [900, 100])[0].indices)
    # After a restart, most of the validation part has been trained on before.
    assert len(again & set(first)) > 60


@pytest.mark.proves("DLC412")
def test_ranks_without_a_sampler_read_the_same() -> None:
    def order_of_rank() -> list[int]:
        generator = torch.Generator().manual_seed(0)  # what all ranks are seeded with
        loader: DataLoader[Any] = DataLoader(NUMBERS, batch_size=8, shuffle=True, generator=generator)
        return torch.cat(list(loader)).tolist()

    def part_of_rank(rank: int) -> set[int]:
        sampler: DistributedSampler[Any] = DistributedSampler(NUMBERS, num_replicas=2, rank=rank)
        return set(torch.cat(list(DataLoader(NUMBERS, batch_size=8, sampler=sampler))).tolist())

    assert order_of_rank() == order_of_rank()
    assert not part_of_rank(0) & part_of_rank(1)
    assert part_of_rank(0) | part_of_rank(1) == set(range(64))


@pytest.mark.proves("DLC413")
def test_the_dataset_is_longer_than_what_its_loader_gives() -> None:
    dataset = Labelled(100)
    subset = DataLoader(dataset, batch_size=32, sampler=SubsetRandomSampler(range(20)))
    part = DataLoader(
        dataset, batch_size=32, sampler=DistributedSampler(dataset, num_replicas=4, rank=0, shuffle=False)
    )
    dropping = DataLoader(dataset, batch_size=32, drop_last=True)
    assert (seen(subset), seen(part), seen(dropping)) == (20, 25, 96)
    assert all(len(loader.dataset) == 100 for loader in (subset, part, dropping))  # type: ignore[arg-type]
    assert seen(DataLoader(dataset, batch_size=32)) == 100


@pytest.mark.proves("DLC413")
def test_means_divided_by_samples_are_too_small() -> None:
    scores, labels = torch.randn(1000, CLASSES), torch.randint(0, CLASSES, (1000,))
    loader = DataLoader(TensorDataset(scores, labels), batch_size=50)
    loss = nn.CrossEntropyLoss()
    means = sum(loss(x, y).item() for x, y in loader)
    weighted = sum(loss(x, y).item() * len(y) for x, y in loader)
    truth = loss(scores, labels).item()
    assert means / len(loader.dataset) == pytest.approx(truth / 50, rel=1e-4)  # type: ignore[arg-type]
    assert weighted / len(loader.dataset) == pytest.approx(truth, rel=1e-4)  # type: ignore[arg-type]


@pytest.mark.proves("DLC414")
def test_class_weights_draw_the_first_samples_only() -> None:
    labels = torch.tensor([0] * 900 + [1] * 100)
    weights = 1.0 / torch.bincount(labels)
    wrong = list(WeightedRandomSampler(weights, len(labels)))  # type: ignore[arg-type]
    assert set(wrong) <= {0, 1}
    assert len(wrong) == len(labels)
    right = list(WeightedRandomSampler(weights[labels], len(labels)))  # type: ignore[arg-type]
    assert len(set(right)) > 300
    assert 350 < sum(labels[right]) < 650  # the rare class is half of the epoch


@pytest.mark.proves("DLC415")
def test_a_dropped_batch_is_not_evaluated() -> None:
    dataset = Labelled(100)
    batches = BatchSampler(SequentialSampler(dataset), 32, drop_last=True)
    assert seen(DataLoader(dataset, batch_size=32, drop_last=True, num_workers=2)) == 96
    assert seen(DataLoader(dataset, batch_sampler=batches)) == 96
    assert seen(DataLoader(Labelled(3), batch_size=8, drop_last=True)) == 0
    assert seen(DataLoader(dataset, batch_size=32)) == 100
    assert seen(DataLoader(dataset, batch_size=1, drop_last=True)) == 100


@pytest.mark.proves("DLC416")
def test_a_distributed_sampler_repeats_samples() -> None:
    def indices(drop_last: bool) -> Counter[int]:
        data: Any = range(10)
        samplers: list[DistributedSampler[Any]] = [
            DistributedSampler(data, num_replicas=4, rank=rank, shuffle=False, drop_last=drop_last) for rank in range(4)
        ]
        return Counter(int(index) for sampler in samplers for index in sampler)

    repeated = indices(drop_last=False)
    assert repeated.total() == 12
    assert {index for index, times in repeated.items() if times == 2} == {0, 1}
    assert indices(drop_last=True).total() == 8
    parts = [range(rank, 10, 4) for rank in range(4)]
    assert sorted(index for part in parts for index in part) == list(range(10))


@pytest.mark.proves("DLC417")
def test_without_shuffling_a_batch_has_one_class() -> None:
    def classes(**options: Any) -> set[int]:
        loader = DataLoader(Labelled(1000), batch_size=50, **options)
        return {len(labels.unique()) for _, labels in loader}

    assert classes() == {1}
    assert min(classes(shuffle=True)) > 5


@pytest.mark.proves("DLC417")
def test_without_shuffling_a_batch_norm_learns_nothing() -> None:
    def accuracy(shuffle: bool) -> float:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            centres = torch.randn(CLASSES, 20)
            labels = torch.arange(CLASSES).repeat_interleave(200)
            samples, tests = (centres[labels] + torch.randn(2000, 20) for _ in range(2))
            net = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, CLASSES))
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for x, y in DataLoader(TensorDataset(samples, labels), batch_size=50, shuffle=shuffle):
                optimizer.zero_grad()
                torch.autograd.backward(nn.functional.cross_entropy(net(x), y))
                optimizer.step()
            return float((net.eval()(tests).argmax(1) == labels).float().mean())

    assert accuracy(shuffle=False) < 0.3
    assert accuracy(shuffle=True) > 0.8


@pytest.mark.proves("DLC418")
def test_shuffled_predictions_do_not_fit_the_rows() -> None:
    dataset = Labelled(1000)

    def agreement(shuffle: bool) -> float:
        loader = DataLoader(dataset, batch_size=64, shuffle=shuffle)
        predictions = torch.cat([one_hot.argmax(1) for one_hot, _ in loader])  # always right
        return (predictions == torch.tensor(dataset.targets)).float().mean().item()

    assert agreement(shuffle=False) == 1.0
    assert agreement(shuffle=True) < 0.2


@pytest.mark.proves("DLC419")
def test_a_batch_norm_fails_for_one_sample() -> None:
    def train(net: nn.Module, *shape: int, **options: Any) -> int:
        loader = DataLoader(TensorDataset(torch.randn(*shape)), batch_size=32, **options)
        return sum(len(net(x)) for (x,) in loader)

    message = "Expected more than 1 value per channel"
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
    pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(3))
    for network, shape in ((net, (33, 4)), (pooled, (33, 3, 8, 8))):
        with pytest.raises(ValueError, match=message):
            train(network, *shape)
        assert train(network, *shape, drop_last=True) == 32
        assert train(network, 34, *shape[1:]) == 34
    assert train(net.eval(), 33, 4) == 33
    assert train(nn.BatchNorm2d(3), 33, 3, 8, 8) == 33


@pytest.mark.filterwarnings("ignore:Guards may run slower:RuntimeWarning")  # on Python 3.13.0 alone
@pytest.mark.proves("DLC420")
def test_the_last_batch_is_compiled_again() -> None:
    def graphs(drop_last: bool, **options: Any) -> int:
        torch._dynamo.reset()
        compiled: list[int] = []

        def backend(graph: torch.fx.GraphModule, example: list[torch.Tensor]) -> Any:
            compiled.append(len(example))
            return graph

        net = torch.compile(nn.Linear(4, 2), backend=backend, **options)
        for _ in range(2):
            for (x,) in DataLoader(TensorDataset(torch.randn(100, 4)), batch_size=32, drop_last=drop_last):
                net(x).sum().backward()
        return len(compiled)

    assert graphs(drop_last=False) == 2
    assert graphs(drop_last=False, dynamic=False) == 2
    assert graphs(drop_last=False, dynamic=True) == 1
    assert graphs(drop_last=True) == 1
