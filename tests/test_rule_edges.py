"""Small changes of the pages' examples, and what each changes: the finding, the safety of its fix, the reason for none.

Most of these came from mutants of the rules that no page noticed (benchmarks/mutants.py, docs/reliability.md).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from test_pages import PAGES, programs

from dlcheck.config import Config
from dlcheck.engine import check
from dlcheck.findings import Finding
from dlcheck.fixing import fix

Changes = dict[str, str]


def found(code: str, changes: Changes, place: Path, patch: pytest.MonkeyPatch) -> list[Finding]:
    """The findings of a rule on its page's first example with some texts replaced, each of them once.

    What "" is replaced with is a requirement of the project.
    """
    requirement = changes.get("", "")
    (text,) = next(programs(PAGES[code])).files.values()
    for old, new in ((old, new) for old, new in changes.items() if old):
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in the example of {code}"
        text = text.replace(old, new)
    (place / "train.py").write_text(text, encoding="utf-8")
    project = f'[project]\nname = "edge"\nversion = "1"\ndependencies = ["{requirement}"]\n' if requirement else ""
    (place / "pyproject.toml").write_text(project)
    patch.chdir(place)
    report = check(["."], Config(isolated=True, overrides={"select": [code]}))
    assert not report.errors
    return sorted(report.findings, key=lambda finding: finding.sort_key)


def said_of(finding: Finding) -> str:
    """How safe its fix is and what it does; why there is none, where there is none."""
    return f"{finding.fix.applicability}: {finding.fix.message}" if finding.fix is not None else finding.unfixed


MASK = "torch.ones(images.shape[0])"
NOISE = "        noise = torch.randn(images.shape[0], 128).cuda()  # DLC111\n"
SUM = "total += loss  #"
MAKE = "    return DataLoader(Crops(images), batch_size=32, shuffle=True, num_workers=4)"
NUMPY = """    class Noisy(torch.utils.data.Dataset):
        def __len__(self):
            return 9

        def __getitem__(self, index):
            return np.random.rand()

    loader = DataLoader(Noisy(), batch_size=32, num_workers=4)"""
ORDER = "DataLoader(dataset, batch_size=32, shuffle=True)"
SIZED = """class Sized(Rows):
    def __len__(self):
        return len(self.paths)


def make_loader(paths, some):
    dataset = Sized(paths) if some else Rows(paths)
"""

ARGUMENTS = "per_device_train_batch_size=32"
ASARRAY = 'np.asarray(sample["image"], dtype=np.float32)'
PAD = """

def collate(samples):
    return nn.utils.rnn.pad_sequence(samples)


def"""
GENERATOR = """def __iter__(self):
        return self.shifted()

    def shifted(self):"""
YIELDED = """        for item in self.items:
            yield self.encoder(item)"""
PINNED = "{'num_workers': 4, 'pin_memory': True}"
HELPER = """def again(self):
        random.seed(self.seed)

    def __iter__(self):"""
DRAWN = """        random.seed(self.seed)  # DLC405
        return self.rows[index].roll(random.randint(-4, 4))
"""

# What the rule's fixes are then, in the order of the findings; nothing where it is silent.
EDGES: dict[str, tuple[str, Changes, list[str]]] = {
    "flag in a name": (
        "DLC110",
        {"    for images": "    flag = True\n    for images", "non_blocking=True": "non_blocking=flag"},
        ["`non_blocking` is not written here as a literal"],
    ),
    "random numbers differ there, ones do not": ("DLC111", {}, ["unsafe", "safe"]),
    "repeated ones": ("DLC111", {NOISE: "", MASK: "torch.ones(4).repeat(2)"}, ["safe"]),
    "a sum of ones": ("DLC111", {NOISE: "", MASK: "torch.ones(4).sum()"}, ["unsafe"]),
    "times a tensor": (
        "DLC111",
        {NOISE: "", MASK: "torch.ones(4).mul(other)"},
        ["a method of the chain may take tensors that stay on the host"],
    ),
    "whole steps": ("DLC111", {NOISE: "", MASK: "torch.arange(0, 10, 2)"}, ["safe"]),
    "named whole steps": ("DLC111", {NOISE: "", MASK: "torch.arange(0, 10, step=2)"}, ["safe"]),
    "steps of one from a half": ("DLC111", {NOISE: "", MASK: "torch.arange(0.5, 4)"}, ["safe"]),
    "steps of one, of a type": ("DLC111", {NOISE: "", MASK: "torch.arange(0, 8, dtype=torch.float32)"}, ["safe"]),
    "steps of a tenth": ("DLC111", {NOISE: "", MASK: "torch.arange(0, 1, 0.1)"}, ["unsafe"]),
    "steps that nobody knows": ("DLC111", {NOISE: "", MASK: "torch.arange(0, 10, step)"}, ["unsafe"]),
    "steps that may be anywhere": ("DLC111", {NOISE: "", MASK: "torch.arange(*span)"}, ["unsafe"]),
    "workers without pinning in no world": (
        "DLC215",
        {
            "    loader =": f"    on = {PINNED} if net.big else {{'num_workers': 0}}\n    loader =",
            "num_workers=4": "**on",
        },
        [],
    ),
    "fork that was chosen": ("DLC217", {"num_workers=4": "num_workers=4, multiprocessing_context='fork'"}, ["unsafe"]),
    "no fork": ("DLC217", {"num_workers=4": "num_workers=4, multiprocessing_context='spawn'"}, []),
    "a collation of torch's own, in words": (
        "DLC424",
        {"batch_size=32": "batch_size=32, collate_fn=torch.utils.data.default_collate"},
        ["unsafe"],
    ),
    "a sampler in a dict": (
        "DLC424",
        {
            "return DataLoader(dataset, batch_size=32, sampler=": "options = dict(sampler=",
            "32, False))": "32, False))\n    return DataLoader(dataset, 32, **options)",
        },
        ["`sampler` is not set in the call of `DataLoader`"],
    ),
    "an option that goes": ("DLC203", {}, ["safe"]),
    "one attribute made elsewhere, one here": (
        "DLC603",
        {
            "self, clips": "self, clips, guard",
            "self.lock =": "self.guard = guard\n        self.lock =",
            "Clips(clips)": "Clips(clips, threading.Lock())",
        },
        2 * ["what makes `self.guard` is not written where it is kept"],
    ),
    "seeded, for training and more": (
        "DLC403",
        {"rng()": "rng(0)", MAKE: MAKE.replace("return", "train_val_loader =") + "\n    return train_val_loader"},
        [""],
    ),
    "seeded, for a test": (
        "DLC403",
        {"rng()": "rng(0)", MAKE: MAKE.replace("return", "test_loader =") + "\n    return test_loader"},
        [],
    ),
    "made anew by each worker's import": (
        "DLC403",
        {
            "\n\nclass": "\nRNG = np.random.default_rng()\n\n\nclass",
            "        self.rng = np.random.default_rng()  # DLC403\n": "",
            "self.rng.integers": "RNG.integers",
            "num_workers=4": "num_workers=4, multiprocessing_context='spawn'",
        },
        [],
    ),
    "copied with the module": (
        "DLC403",
        {
            "\n\nclass": "\nRNG = np.random.default_rng()\n\n\nclass",
            "        self.rng = np.random.default_rng()  # DLC403\n": "",
            "self.rng.integers": "RNG.integers",
            "num_workers=4": "num_workers=4, multiprocessing_context='fork'",
        },
        [""],
    ),
    "a good seed before a bad one": (
        "DLC404",
        {"np.random.seed(SEED + worker_id)  # DLC404": "np.random.seed(random.getrandbits(32))"},
        ["unsafe"],
    ),
    "numpy's numbers follow torch's seed": (
        "DLC406",
        {"import torch\n": "import numpy as np\nimport torch\n", f"    loader = {ORDER}": NUMPY},
        ["unsafe"],
    ),
    "order of a sampler": (
        "DLC406",
        {ORDER: "DataLoader(dataset, sampler=torch.utils.data.RandomSampler(dataset))"},
        ["unsafe"],
    ),
    "order that is no chance": (
        "DLC406",
        {ORDER: "DataLoader(dataset, sampler=torch.utils.data.SequentialSampler(dataset))"},
        [],
    ),
    "the second of two data sets has no length": (
        "DLC322",
        {"def make_loader(paths):\n": SIZED, "Rows(paths), b": "dataset, b"},
        [""],
    ),
    "no batch sampler, in words": ("DLC413", {"batch_size=32,": "batch_size=32, batch_sampler=None,"}, ["unsafe"]),
    "padding, in words": ("DLC416", {"shuffle=False)": "shuffle=False, drop_last=False)"}, [""]),
    "padding, perhaps": ("DLC416", {"shuffle=False)": "shuffle=False, drop_last=net.even)"}, []),
    "the last batch is never reached": (
        "DLC419",
        {"        optimizer.step()": "        optimizer.step()\n        if loader.stop:\n            break"},
        [],
    ),
    "graphs that are kept on purpose": ("DLC503", {"backward()": "backward(retain_graph=True)"}, ["unsafe"]),
    "the loss under another name": ("DLC503", {SUM: "value = loss * 2\n        total += value  #"}, ["safe"]),
    "a name with two values": (
        "DLC503",
        {SUM: "value = loss * 2\n        value = loss * 3\n        total += value  #"},
        ["unsafe"],
    ),
    "a size of another tensor": ("DLC111", {NOISE: "", MASK: "torch.ones(4).reshape(images.size(0))"}, ["safe"]),
    "a whole number": ("DLC111", {NOISE: "", MASK: "torch.ones(4).repeat(int(gan.n))"}, ["safe"]),
    "another type": ("DLC111", {NOISE: "", MASK: "torch.ones(4).to(torch.float64)"}, ["safe"]),
    "a GPU asked for": ("DLC103", {}, ["safe: Add `pin_memory=torch.cuda.is_available()`"]),
    "not pinned, in words": (
        "DLC103",
        {"num_workers=8": "num_workers=8, pin_memory=False"},
        ["safe: Set `pin_memory=torch.cuda.is_available()`"],
    ),
    "workers where there is a GPU": (
        "DLC201",
        {
            "from torch import nn": "import torch\nfrom torch import nn",
            "shuffle=True": "shuffle=True, num_workers=4 if torch.cuda.is_available() else 0",
        },
        [],
    ),
    "no workers where there is a GPU": (
        "DLC201",
        {
            "from torch import nn": "import torch\nfrom torch import nn",
            "shuffle=True": "shuffle=True, num_workers=0 if torch.cuda.is_available() else 4",
        },
        ["`num_workers` comes from `0 if torch.cuda.is_available() else 4`"],
    ),
    "a generator that computes": (
        "DLC213",
        {
            "DataLoader, Dataset": "DataLoader, IterableDataset",
            "(Dataset)": "(IterableDataset)",
            "    def __len__(self):\n        return len(self.items)\n\n": "",
            "def __getitem__(self, index):": "def __iter__(self):",
            "        return self.encoder(self.items[index])": YIELDED,
        },
        ["a generator would switch gradients off for its caller, too"],
    ),
    "fork by default": ("DLC217", {}, ['unsafe: Add `multiprocessing_context="forkserver"`']),
    "seeded once by a generator": (
        "DLC405",
        {
            "DataLoader, Dataset": "DataLoader, IterableDataset",
            "(Dataset)": "(IterableDataset)",
            "def __getitem__(self, index):": GENERATOR,
            DRAWN: DRAWN.replace("return self.rows[index]", "for row in self.rows:\n            yield row"),
            ", shuffle=True": "",
        },
        [],
    ),
    "seeded once by a helper": (
        "DLC405",
        {
            "DataLoader, Dataset": "DataLoader, IterableDataset",
            "(Dataset)": "(IterableDataset)",
            "def __getitem__(self, index):": HELPER,
            DRAWN: "        self.again()\n        return iter([row.roll(random.randint(0, 4)) for row in self.rows])\n",
            ", shuffle=True": "",
        },
        [],
    ),
    "full batches no more": ("DLC415", {}, ["unsafe: Set `drop_last=False`"]),
    "a loader that trains as well": (
        "DLC416",
        {
            "    for images, labels in DataLoader(val_set, batch_size=64, sampler=sampler):": (
                "    loader = DataLoader(val_set, batch_size=64, sampler=sampler)\n"
                "    with torch.enable_grad():\n        for images, labels in loader:\n"
                "            net(images).sum().backward()\n    for images, labels in loader:"
            )
        },
        [],
    ),
    "trainer that starts its workers again": (
        "DLC701",
        {ARGUMENTS: "dataloader_num_workers=4, num_train_epochs=3, max_steps=0"},
        ["unsafe: Add `dataloader_persistent_workers=True`"],
    ),
    "trainer that counts steps": ("DLC701", {ARGUMENTS: "dataloader_num_workers=4, max_steps=1"}, []),
    "trainer that does not pin": (
        "DLC701",
        {ARGUMENTS: "dataloader_num_workers=4, dataloader_persistent_workers=True, dataloader_pin_memory=False"},
        ["safe: Set `dataloader_pin_memory=True`"],
    ),
    "trainer that cannot pin": (
        "DLC701",
        {
            ARGUMENTS: "dataloader_num_workers=4, dataloader_persistent_workers=True, dataloader_pin_memory=False",
            "self.processor(image)": "self.processor(image, self.processor.device)",
        },
        [],
    ),
    "trainer that says what its workers do": (
        "DLC701",
        {ARGUMENTS: "dataloader_persistent_workers=False"},
        ["unsafe: Pass `dataloader_num_workers=4`"],
    ),
    "accelerator imported in the function": (
        "DLC702",
        {
            "from accelerate import Accelerator\n": "",
            "    accelerator = ": "    from accelerate import Accelerator\n\n    accelerator = ",
        },
        ["`DataLoaderConfiguration` would have to be imported"],
    ),
    "pinned by a name": (
        "DLC101",
        {
            "def train(net, dataset, optimizer):": "def train(net, dataset, optimizer, wait=False):",
            "images.to(device)": "images.to(device, non_blocking=wait)",
            "labels.to(device)": "labels.cuda()",
        },
        ["`wait` decides it", "safe"],
    ),
    "device of pinned memory, with an older torch": (
        "DLC108",
        {"": "torch>=2.1"},
        ["unsafe: Remove `pin_memory_device`"],
    ),
    "device of pinned memory": ("DLC108", {}, ["safe: Remove `pin_memory_device`"]),
    "persistent where there may be workers": (
        "DLC203",
        {"dataset)": "dataset, workers=0)", "batch_size=8": "batch_size=8, num_workers=workers", "": "torch>=1.13"},
        ["safe: Set `persistent_workers=workers > 0`"],
    ),
    "prefetching before torch 2.0": (
        "DLC203",
        {
            "dataset)": "dataset, workers=0)",
            "batch_size=8": "batch_size=8, num_workers=workers",
            "persistent_workers=True": "prefetch_factor=4",
            "": "torch>=1.13",
        },
        ["before torch 2.0 `prefetch_factor` cannot be `None`"],
    ),
    "prefetching since torch 2.0": (
        "DLC203",
        {
            "dataset)": "dataset, workers=0)",
            "batch_size=8": "batch_size=8, num_workers=workers",
            "persistent_workers=True": "prefetch_factor=4",
            "": "torch>=2.0",
        },
        ["safe: Set `prefetch_factor=4 if workers else None`"],
    ),
    "arrays of one type": ("DLC310", {}, ["safe"]),
    "arrays made of one type": (
        "DLC310",
        {ASARRAY: ASARRAY + ".transpose(2, 0, 1)"},
        ["safe"],
    ),
    "arrays of a number's type": ("DLC310", {ASARRAY: "np.ones((4, sample['n'])).T / 2"}, ["safe"]),
    "arrays of any type": ("DLC310", {ASARRAY: "np.asarray(sample['image'])"}, ["unsafe"]),
    "some arrays of one type": (
        "DLC310",
        {"dtype=np.float32) for sample in batch]": "dtype=np.float32) for sample in batch if sample['ok']]"},
        ["unsafe"],
    ),
    "arrays of other samples": (
        "DLC310",
        {f"{ASARRAY} for sample in batch": f"{ASARRAY} for sample in OTHERS"},
        ["unsafe"],
    ),
    "arrays that are divided by anything": ("DLC310", {ASARRAY: "np.ones((4, 3)) / sample['n']"}, ["unsafe"]),
    "one pass": (
        "DLC421",
        {
            "    return DataLoader(": "    loader = DataLoader(",
            "batch_size=32)": "batch_size=32)\n    for _ in loader:\n        pass",
        },
        [],
    ),
    "one pass with one worker": (
        "DLC421",
        {
            "    return DataLoader(": "    loader = DataLoader(",
            "batch_size=32)": "batch_size=32, num_workers=1)\n    for _ in loader:\n        pass",
        },
        [],
    ),
    "batches that are padded": (
        "DLC420",
        {"\n\ndef": PAD, "shuffle=True": "shuffle=True, collate_fn=collate"},
        [],
    ),
    "batches that a function makes": (
        "DLC420",
        {"\n\ndef": PAD.replace("pad_sequence", "stack"), "shuffle=True": "shuffle=True, collate_fn=collate"},
        [""],
    ),
    "forked on purpose": ("DLC603", {"num_workers=4": "num_workers=4, multiprocessing_context='fork'"}, []),
    "spawned on purpose": ("DLC603", {"num_workers=4": "num_workers=4, multiprocessing_context='spawn'"}, ["unsafe"]),
    "batches written": ("DLC317", {"batch_size=32, shuffle=True": "batch_size=None"}, []),
}


@pytest.mark.parametrize("edge", EDGES)
def test_edge(edge: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, changes, kinds = EDGES[edge]
    said = [said_of(finding) for finding in found(code, changes, tmp_path, monkeypatch)]
    # Of most fixes only how safe they are: the pages show what they do.
    short = [one.split(":")[0] if kind in ("safe", "unsafe") else one for one, kind in zip(said, kinds, strict=False)]
    assert short + said[len(kinds) :] == kinds


def test_one_worker_is_no_plural(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = found("DLC202", {"num_workers=8": "num_workers=1"}, tmp_path, monkeypatch)
    assert "starts its worker again" in finding.message


def test_a_call_in_a_helper_is_shown_where_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {
        "\n\ndef train": "\n\ndef tidy():\n    torch.cuda.empty_cache()\n\n\ndef train",
        "        torch.cuda.empty_cache()  # DLC502": "        tidy()",
    }
    (finding,) = found("DLC502", changes, tmp_path, monkeypatch)
    assert [(one.line, one.message) for one in finding.related] == [
        (9, "in each round of this loop"),
        (5, "called here"),
    ]


def test_a_batch_sampler_is_shown_where_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {
        "return DataLoader(": "batches = BatchSampler(RandomSampler(dataset), 32, False)\n    return DataLoader(",
        "sampler=BatchSampler(RandomSampler(dataset), 32, False))": "sampler=batches)",
    }
    (finding,) = found("DLC424", changes, tmp_path, monkeypatch)
    assert [(one.line, one.message) for one in finding.related] == [(18, "made here")]


def test_a_nested_loop_is_shown_with_the_outer_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = found("DLC209", {}, tmp_path, monkeypatch)
    assert [one.message for one in finding.related] == ["the loop over the same loader", "its workers persist"]


@pytest.mark.parametrize(
    ("requirement", "said"),
    [("torch>=2.3,<2.11", "The loader never calls"), ("torch>=2.11", "`Augmented` raises NotImplementedError")],
)
def test_what_a_subset_does_depends_on_torch(
    requirement: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (finding,) = found("DLC318", {"": requirement}, tmp_path, monkeypatch)
    assert finding.message.startswith(said)


def test_a_subset_with_any_torch_says_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = found("DLC318", {"": "torch>=2.3"}, tmp_path, monkeypatch)
    assert not finding.message.startswith(("The loader never", "`Augmented` raises"))


def test_those_who_measure_are_told_what_it_is_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = found("DLC219", {}, tmp_path, monkeypatch)
    assert finding.measure["about"] == {"owner": "Photos", "attributes": ["cache"], "kind": "cache"}
    (finding,) = found("DLC218", {}, tmp_path, monkeypatch)
    about = finding.measure["about"]
    assert (about["owner"], about["attributes"], about["method"]) == ("Shards", ["epoch"], "set_epoch")
    assert "arguments" in about


def fixed(code: str) -> str:
    """The file that ``found`` wrote, after the rule's fixes."""
    config = Config(isolated=True, overrides={"select": [code]})
    done = fix(lambda after: check(["."], config, overlays=after), unsafe=True)
    return done.changes[0].after.decode()


def test_only_the_call_goes_where_more_hangs_on_the_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = "        torch.cuda.empty_cache()  # DLC502"
    asked = f"        if torch.cuda.is_available():\n    {call}\n            net.log()"
    found("DLC502", {call: asked}, tmp_path, monkeypatch)
    assert "        if torch.cuda.is_available():\n            net.log()\n" in fixed("DLC502")


def test_what_needs_tensors_stays_behind_their_making(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {
        "        transforms.Normalize([0.5] * 3, [0.5] * 3),\n": "",
        "        transforms.CenterCrop(224),": "        transforms.Normalize([0.5] * 3, [0.5] * 3),",
    }
    found("DLC313", changes, tmp_path, monkeypatch)
    text = fixed("DLC313")
    assert text.index("Resize") < text.index("ToTensor") < text.index("Normalize")
