"""What becomes of a dataset and its samples in worker processes."""

from __future__ import annotations

import itertools
import os
import pickle
import time
from collections import Counter
from typing import Any

import torch.multiprocessing
from torch.utils.data import DataLoader, IterableDataset

from . import asking
from .asking import SAMPLES, STREAM, Inapplicable, answer, digest, line_of, samples_of, size_of, with_workers
from .states import owner_of

MAPS = "/proc/self/maps"
KEPT = 8  # batches


def copies_per_sample(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether workers give samples again that others gave."""
    if not isinstance(source.dataset, IterableDataset):
        raise Inapplicable(f"{type(source.dataset).__name__} is no stream: its sampler shares it out")
    alone = samples_of(source.loader({"num_workers": 0}), STREAM)
    loader = with_workers(source)
    many = samples_of(loader, STREAM * loader.num_workers)
    known = Counter(alone)
    again = sum(max(0, count - known[one]) for one, count in Counter(many).items() if one in known)
    counts = {"alone": len(alone), "with_workers": len(many), "again": again}
    if len(alone) < STREAM:  # all of it: then numbers tell, also where samples are drawn at random
        said = f"{len(alone)} samples without workers, {len(many)} with {loader.num_workers}"
        return answer(len(many) > 1.5 * len(alone), said, **counts)
    # Both are cut off here, and the numbers tell nothing.
    said = f"the first {len(alone)} samples without workers, the first {len(many)} with {loader.num_workers}"
    if not again and not set(alone) & set(many):
        raise Inapplicable(f"{said}: none like another, and a long stream of random samples tells nothing")
    return answer(again > 0, f"{said}: {again} come again", **counts)


def same_with_workers(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether workers give other samples than the dataset does when it is asked by one process."""
    indices = list(range(min(size_of(source.dataset), SAMPLES)))
    expected = [digest(source.dataset[index]) for index in indices]
    if expected != [digest(source.dataset[index]) for index in indices]:
        raise Inapplicable("its samples differ from one time to the next: there is nothing to compare")
    end = time.monotonic() + asking.RACE_S
    passes = 0
    while passes == 0 or time.monotonic() < end:
        passes += 1
        # dlcheck: ignore[DLC206] each pass has new workers, which race anew
        loader = DataLoader(source.dataset, batch_size=None, sampler=indices, num_workers=4)
        try:
            wrong = sum(digest(sample) != known for sample, known in zip(loader, expected))
        except Exception as error:  # noqa: BLE001 -- what a worker raises where one process does not is an answer
            return answer(True, f"with four workers reading raises {line_of(error)}", passes=passes)
        if wrong:
            told = f"{wrong} of {len(indices)} samples differ between four workers and one process"
            return answer(True, told, wrong=wrong, samples=len(indices), passes=passes)
    told = f"in {passes} passes no sample of {len(indices)} differs between four workers and one process"
    return answer(False, told, wrong=0, samples=len(indices), passes=passes)


def cannot_be_pickled(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether what a worker is started with can be sent to another process; of a dataset's attribute, for its sake."""
    loader = source.loader({"num_workers": 0})
    if "attribute" in config:
        return _attribute_cannot_be_pickled(loader, config)
    for name in ("dataset", "collate_fn", "worker_init_fn"):
        why = _why_not_pickled(getattr(loader, name))
        if why:
            return answer(True, f"{name}: {why}", part=name)
    return answer(False, "dataset, collate_fn and worker_init_fn can be pickled", part=None)


def _attribute_cannot_be_pickled(loader: Any, about: dict[str, Any]) -> dict[str, Any]:
    """The same of one attribute: that the dataset cannot be pickled may be another's doing."""
    name, owner = about["attribute"], owner_of(loader.dataset, None, about)
    if name not in vars(owner):
        raise Inapplicable(f"when a worker starts, {about['owner']} has no `{name}`")
    why = _why_not_pickled(vars(owner)[name])
    if not why:
        return answer(False, f"`{name}` can be pickled", part=None)
    if not _why_not_pickled(owner):
        return answer(False, f"{about['owner']} can be pickled, and leaves `{name}` out", part=None)
    return answer(True, f"`{name}`: {why}", part=name)


def _why_not_pickled(value: Any) -> str:
    try:
        pickle.dumps(value)
    except Exception as error:  # noqa: BLE001 -- that is the question
        return line_of(error)
    return ""


def batch_cannot_be_sent(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether a batch cannot be handed from a worker to the process that asked for it."""
    from multiprocessing.reduction import ForkingPickler

    collate = source.loader({"num_workers": 0}).collate_fn
    try:
        ForkingPickler.dumps(collate([source.dataset[0], source.dataset[1]]))
    except Exception as error:  # noqa: BLE001 -- that is the question
        return answer(True, f"a batch cannot be pickled: {line_of(error)}")
    return answer(False, "a batch of the first two samples can be pickled")


def files_stay_behind(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether what workers send lies in files with a name, which a program that is killed leaves behind."""
    strategy = torch.multiprocessing.get_sharing_strategy()  # type: ignore[no-untyped-call, unused-ignore]
    if strategy != "file_system":
        raise Inapplicable(f"run like this the sharing strategy is {strategy}")
    if not os.path.exists(MAPS):
        raise Inapplicable("it needs /proc (Linux): other systems do not tell which files are in use")
    kept = list(itertools.islice(with_workers(source, pin_memory=False), KEPT))
    named = _named_files()
    told = f"{len(kept)} batches that are kept lie in {len(named)} named files: a program that is killed leaves them"
    return answer(bool(named), told, files=len(named), batches=len(kept))


def _named_files() -> set[str]:
    """The files of shared memory that this process uses and that others could still open."""
    with open(MAPS) as maps:
        used = {line.split(None, 5)[-1].strip() for line in maps if "/dev/shm/torch_" in line}
    return {path for path in used if not path.endswith(" (deleted)")}
