"""What a dataset gives when it is asked for a sample."""

from __future__ import annotations

import gc
import itertools
import os
from contextlib import suppress
from typing import Any

from torch.utils.data import DataLoader, Subset

from .asking import ITEMS, SAMPLES, Inapplicable, answer, digest, generators_kept, line_of, seed, size_of, versions


def sample_changes(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether asking for a sample changes it, all generators being where they were."""
    seen = []
    with generators_kept():
        for _ in range(3):
            seed(0)
            seen.append(digest(source.dataset[0]))
    distinct = len(set(seen))
    said = f"one sample, drawn three times with the same generators, {versions(distinct)}"
    return answer(distinct > 1, said, distinct=distinct)


def samples_share_memory(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether a sample that was given changes when the next is asked for."""
    first = source.dataset[0]
    before = digest(first)
    for index in range(1, min(size_of(source.dataset), 4)):
        source.dataset[index]
    changed = digest(first) != before
    told = f"sample 0 {'changes' if changed else 'stays as it is'} when others are read"
    return answer(changed, told, changed=changed)


def parts_share_dataset(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether what is set on the dataset of one part of a split is set for another part as well."""
    part, name = source.dataset, config.get("attribute", "transform")
    if not isinstance(part, Subset):
        raise Inapplicable(f"run like this the loader has a {type(part).__name__}, which is no part of a split")
    if not config.get("through", True):
        return _ignored_by_part(part, name)
    base = part.dataset
    others = [one for one in _parts_like(part) if one is not part and set(one.indices) - set(part.indices)]
    if not others:
        raise Inapplicable("no other part of the split is there any more")
    sharing = sum(one.dataset is base for one in others)
    count = "the other part" if len(others) == 1 else f"{sharing or len(others)} of {len(others)} other parts"
    said = f"{count} of the split {'is' if len(others) == 1 else 'are'} cut from "
    said += f"{'the same' if sharing else 'another'} {type(base).__name__}, whose attribute `{name}` is"
    return answer(sharing > 0, said, others=len(others), sharing=sharing)


def _parts_like(part: Any) -> list[Any]:
    """The parts of a dataset of this kind and size that the program still has."""

    def fits(one: Any) -> bool:
        return type(one.dataset) is type(part.dataset) and len(one.dataset) == len(part.dataset)

    return [one for one in gc.get_objects() if issubclass(type(one), Subset) and hasattr(one, "dataset") and fits(one)]


def _ignored_by_part(part: Any, name: str) -> dict[str, Any]:
    """Whether a part gives the same samples whatever its own attribute is."""
    called: list[Any] = []
    had, kept = name in vars(part), vars(part).get(name)
    setattr(part, name, called.append)
    try:
        for take in (part.__getitem__, lambda index: part.__getitems__([index])):
            # It was called, and gave nothing: what then raises says no more than that.
            with suppress(Exception):
                take(0)
    finally:
        setattr(part, name, kept) if had else delattr(part, name)
    told = f"a sample of the {type(part).__name__} is made {'with' if called else 'without'} its own `{name}`"
    return answer(not called, told, called=len(called))


def samples_are_missing(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether the dataset gives None for a sample."""
    number = min(size_of(source.dataset), SAMPLES)
    missing = sum(source.dataset[index] is None for index in range(number))
    return answer(missing > 0, f"{missing} of {number} samples are None", missing=missing, samples=number)


def samples_raise(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether making samples, and a batch of them, raises."""
    loader = source.loader({"num_workers": 0})
    try:
        for _ in itertools.islice(loader, ITEMS):
            pass
    except Exception as error:  # noqa: BLE001 -- that is the question
        return answer(True, line_of(error), raised=1)
    return answer(False, f"{ITEMS} batches were made", raised=0)


def loader_ignores_dataset(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether a loader gives other samples than indexing does."""
    loader = DataLoader(source.dataset, batch_size=1, collate_fn=_only)
    number = min(size_of(source.dataset), 8)
    wrong = sum(digest(source.dataset[i]) != digest(one) for i, one in zip(range(number), loader))
    return answer(wrong > 0, f"{wrong} of {number} samples of the loader are not `dataset[i]`", wrong=wrong)


def _only(samples: Any) -> Any:
    return samples[0]


def files_stay_open(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether reading samples leaves files open."""
    number = min(size_of(source.dataset), 100)
    source.dataset[0]
    before = _open_files()
    kept = [source.dataset[index] for index in range(number)]
    opened = _open_files() - before
    said = f"{opened} more open files after {len(kept)} samples that are kept"
    return answer(opened * 2 >= number, said, opened=opened, samples=number)


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
