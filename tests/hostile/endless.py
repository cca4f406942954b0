"""Programs in which a value is made of itself: whoever asks what it holds asks the same again."""

from __future__ import annotations

from collections.abc import Iterator

HEAD = """\
import copy, functools, itertools, os
import numpy as np
import torch
from torch import nn
from torch.utils.data import *
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms
from tqdm import tqdm


class Mine(Dataset):
    def __init__(self, x):
        self.x = x
        self.items = x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.items[index]

    def __iter__(self):
        yield from self.x


"""

# What is done with a value, in as many of a program's places as have rules about them.
USES = """\
loader = DataLoader({x}, batch_size={x}, sampler={x}, num_workers={x}, pin_memory=True, collate_fn={x}, generator={x})
other = DataLoader({x}, batch_size=4, num_workers=2, pin_memory=True, worker_init_fn={x})
third = DataLoader(Mine({x}), batch_size=4, shuffle=True, num_workers=2, pin_memory=True, collate_fn=lambda b: {x})
fourth = DataLoader(Mine({x}), batch_sampler={x}, num_workers=2, multiprocessing_context={x})
for batch in loader:
    batch = batch.to({x})
    loss = net(batch)
    loss.backward()
    total += loss.item()
for batch in other:
    first, second = batch
    first = first.to({x}, non_blocking=True)
    torch.tensor({x}).to({x})
    torch.zeros({x}).to("cuda")
    {x}.to("cuda")
    net(first).backward()
for batch in tqdm({x}):
    copied = {x}.to("cpu", non_blocking=True)
    print(copied)
for batch in third:
    net(batch.to({x})).backward()
    kept.append({x})
for batch in fourth:
    net(batch.to({x})).backward()
"""

# Those that did not end once, or are asked what they hold.
FEW = (
    "torch.device({x})",
    "torch.device(type={x})",
    "BatchSampler({x}, 4, False)",
    "RandomSampler({x})",
    "Subset({x}, {x})",
    "ConcatDataset([{x}])",
    "transforms.Compose([{x}])",
    "[{x}]",
    "({x}, *{x})",
    "{{'a': {x}}}",
    "iter({x})",
    "Mine({x})",
    "functools.partial({x})",
    "DataLoader({x}, sampler={x}, batch_size={x})",
)
MORE = (
    "Subset({x}, [0])", "{x} + {x}", "{x} * 2", "{x}[0]", "{x}['a']", "TensorDataset({x})", "DistributedSampler({x})",
    "SubsetRandomSampler({x})", "WeightedRandomSampler({x}, 4)", "transforms.Lambda({x})", "list({x})", "tuple({x})",
    "dict(a={x})", "enumerate({x})", "next({x})", "zip({x}, {x})", "map({x}, {x})", "copy.deepcopy({x})", "{x}.copy()",
    "{{**{x}}}", "{x}.view(-1)", "{x}.to({x})", "{x}.pin_memory()", "{x}.cuda()", "torch.tensor({x})",
    "torch.stack([{x}])", "torch.from_numpy({x})", "np.array({x})", "nn.Sequential({x})",
    "nn.parallel.DistributedDataParallel({x})", "torch.compile({x})", "itertools.cycle({x})",
    "itertools.chain({x}, {x})", "random_split({x}, [1, 2])", "random_split({x}, [1, 2])[0]", "ChainDataset([{x}])",
    "len({x})", "int({x})", "str({x})",
    "f'{{{x}}}'", "{x} if {x} else {x}", "{x} or {x}", "-{x}", "max({x}, {x})", "range({x})", "sorted({x})",
    "reversed({x})", "{x}.map({x})", "{x}.batch(4)", "{x}({x})", "lambda a: {x}(a)", "{x}.dataset", "{x}.dataset.data",
    "{x}.shape", "torch.zeros({x})", "torch.Generator({x}).manual_seed({x})", "np.random.default_rng({x})", "open({x})",
    "tqdm(enumerate({x}))", "os.path.join({x}, {x})", "getattr({x}, 'a')", "type({x})", "{x}.__class__",
    "np.memmap({x})", "torch.load({x})", "set({x})", "nn.ModuleList([{x}])", "nn.BatchNorm1d({x})",
    "nn.AdaptiveAvgPool2d({x})",
)  # fmt: skip


def programs(*makers: str) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of files, five for each way to make a value of another."""
    for maker in makers:
        for way, write in WAYS.items():
            yield f"{maker} {way}", (HEAD + write(maker)).encode()


def _indented(text: str, levels: int) -> str:
    return "".join(f"{'    ' * levels}{line}\n" for line in text.splitlines())


def _loop(maker: str) -> str:
    body = f"x = {maker.format(x='x')}\n{USES.format(x='x')}"
    return f"def train(x, net, total, kept):\n    for epoch in range(3):\n{_indented(body, 2)}"


def _recursion(maker: str) -> str:
    body = f"{USES.format(x='x')}train({maker.format(x='x')}, net, total, kept)\n"
    return f"def train(x, net, total, kept):\n    for epoch in range(3):\n{_indented(body, 2)}"


def _returned(maker: str) -> str:
    made = f"def made(x):\n    return {maker.format(x='made(x)')}\n\n\n"
    body = f"x = made(epoch)\n{USES.format(x='x')}"
    return f"{made}def train(net, total, kept):\n    for epoch in range(3):\n{_indented(body, 2)}"


def _attribute(maker: str) -> str:
    start = "class Trainer(nn.Module):\n    def __init__(self, x):\n        super().__init__()\n        self.x = x\n\n"
    more = f"    def more(self):\n        self.x = {maker.format(x='self.x')}\n\n"
    fit = (
        f"    def fit(self, net, total, kept):\n        for epoch in range(3):\n{_indented(USES.format(x='self.x'), 3)}"
    )
    return start + more + fit


_KEEPING = """\
class Keeping(Dataset):
    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x(self.x[index]), self.x[index]


class More(Keeping):
    def __init__(self, x):
        super().__init__(x)
        self.x = MAKER


"""


def _stored(maker: str) -> str:
    body = f"x = More(x)\n{USES.format(x='x')}"
    train = f"def train(x, net, total, kept):\n    for epoch in range(3):\n{_indented(body, 2)}"
    return _KEEPING.replace("MAKER", maker.format(x="self.x")) + train


WAYS = {
    "in a loop": _loop,
    "in a recursion": _recursion,
    "in what it returns": _returned,
    "in an attribute": _attribute,
    "in a dataset": _stored,
}
