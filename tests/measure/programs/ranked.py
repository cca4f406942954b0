"""Trains on several devices, as its first argument says; some of its ranks do not get as far as that."""

import os
import sys
import time

MODE = sys.argv[1]
LAST = os.environ.get("RANK") == "1"

if MODE == "dies" and LAST:
    raise RuntimeError("no room for another one")
if MODE == "hangs" and LAST:
    time.sleep(600)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset  # noqa: E402

ROWS = TensorDataset(torch.arange(33.0).reshape(33, 1))


class Numbers(IterableDataset):
    def __init__(self, rank=0, world_size=1):
        self.rank, self.world_size = rank, world_size

    def __iter__(self):
        for number in range(self.rank, 40, self.world_size):
            yield torch.tensor([float(number)])


def make_loader():
    if MODE == "split stream":
        return DataLoader(Numbers(dist.get_rank(), dist.get_world_size()), batch_size=4, num_workers=1)
    if MODE == "split rows":
        return DataLoader(ROWS, batch_size=4, sampler=DistributedSampler(ROWS))
    return DataLoader(Numbers(), batch_size=4)


def train(rank=None):
    if MODE == "spawned":
        dist.init_process_group("gloo", rank=rank, world_size=2)
    elif MODE not in ("apart", "hangs"):
        dist.init_process_group("gloo")
    for _ in make_loader():
        raise AssertionError("a step was taken")


if __name__ == "__main__":
    if MODE == "spawned":
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[2])
        mp.spawn(train, nprocs=2)
    else:
        train()
