"""Options of loaders changed where they live: in the call, in a dict, in a constant, in a default; and refusals."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from dlcheck.config import Config
from dlcheck.engine import check
from dlcheck.findings import Finding
from dlcheck.fixing import fix

HEAD = "from torch.utils.data import DataLoader\n"
LOOP = """
    for epoch in range(9):
        for x in loader:
            net(x.cuda(non_blocking=True)).backward()
"""


def findings(code: str) -> list[Finding]:
    return [finding for finding in check(["."], _config(code)).findings if finding.code == code]


def _config(code: str) -> Config:
    return Config(isolated=True, overrides={"select": [code]})


def fixed(code: str, unsafe: bool = True) -> str:
    done = fix(lambda after: check(["."], _config(code), overlays=after), unsafe=unsafe)
    assert not done.errors
    return done.changes[0].after.decode() if done.changes else ""


def write(place: Path, monkeypatch: pytest.MonkeyPatch, body: str, top: str = "") -> str:
    text = f"{HEAD}{top}\n\ndef train(net, dataset, other, **rest):\n{body}{LOOP}"
    (place / "train.py").write_text(text, encoding="utf-8")
    (place / "pyproject.toml").touch()
    monkeypatch.chdir(place)
    return text


PLACES = [
    # the place of `pin_memory`, before and after
    ("", "    loader = DataLoader(dataset, 8, num_workers=2)",
     "    loader = DataLoader(dataset, 8, num_workers=2, pin_memory=True)"),
    ("", "    loader = DataLoader(dataset, 8, True, None, None, 2, None, False)",
     "    loader = DataLoader(dataset, 8, True, None, None, 2, None, True)"),
    ("", "    loader = DataLoader(dataset, **{'num_workers': 2, 'pin_memory': False})",
     "    loader = DataLoader(dataset, **{'num_workers': 2, 'pin_memory': True})"),
    ("", "    o = {}\n    o['num_workers'] = 2\n    o['pin_memory'] = False\n    loader = DataLoader(dataset, **o)",
     "    o = {}\n    o['num_workers'] = 2\n    o['pin_memory'] = True\n    loader = DataLoader(dataset, **o)"),
    ("", "    o = dict(num_workers=2)\n    loader = DataLoader(dataset, **o)",
     "    o = dict(num_workers=2)\n    loader = DataLoader(dataset, **o, pin_memory=True)"),
    ("PIN = False\n", "    loader = DataLoader(dataset, num_workers=2, pin_memory=PIN)",
     "    loader = DataLoader(dataset, num_workers=2, pin_memory=PIN)"),
]  # fmt: skip


@pytest.mark.parametrize(("top", "before", "after"), PLACES)
def test_an_option_is_set_where_it_lives(
    top: str, before: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write(tmp_path, monkeypatch, before, top)
    assert fixed("DLC102") == text.replace(before, after).replace("PIN = False", "PIN = True")


REFUSED = [
    ("", "    loader = DataLoader(dataset, num_workers=2, pin_memory=not 1)", "`pin_memory` comes from `not 1`"),
    ("PIN = False\nprint(PIN)\n", "    loader = DataLoader(dataset, num_workers=2, pin_memory=PIN)",
     "`PIN` is read elsewhere too"),
]  # fmt: skip


@pytest.mark.parametrize(("top", "body", "reason"), REFUSED)
def test_a_refusal_says_why(top: str, body: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, monkeypatch, body, top)
    (found,) = findings("DLC102")
    assert (found.fix, found.unfixed) == (None, reason)


def test_what_others_read_is_not_changed_safely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "    o = {'num_workers': 2, 'pin_memory': False}\n    loader = DataLoader(dataset, **o)\n    print(o)"
    text = write(tmp_path, monkeypatch, body)
    assert fixed("DLC102", unsafe=False) == ""
    assert fixed("DLC102") == text.replace("False", "True")
    (found,) = findings("DLC102")
    assert found.fix is not None
    assert found.fix.message == "Set `pin_memory=True` where `o` holds it"


def test_the_default_of_a_parameter_is_not_for_a_fix_to_pin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = "\n\ndef make(dataset, pin=False):\n    return DataLoader(dataset, num_workers=2, pin_memory=pin)\n"
    write(tmp_path, monkeypatch, "    loader = make(dataset)", top)
    assert [found.unfixed for found in findings("DLC102")] == ["`pin` is for its callers and users to choose"]


def test_workers_and_what_needs_them_go_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = dedent(
        """\
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        dataset = TensorDataset(torch.zeros(9, 3))
        loader = DataLoader(
            dataset,
            num_workers=4,  # why
            persistent_workers=True, prefetch_factor=4,
            batch_size=3, timeout=9,
        )
        """
    )
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    after = fixed("DLC204")
    assert "num_workers=0,  # why\n" in after
    assert not any(word in after for word in ("persistent", "prefetch", "timeout"))
    compile(after, "train.py", "exec")


DEFAULT = """\
import torch
from torch.utils.data import DataLoader, TensorDataset


def make(num_workers=2):
    return DataLoader(TensorDataset(torch.zeros(9, 3)), num_workers=num_workers)


def main():
    for batch in make():
        print(batch)
"""


def test_of_a_default_it_is_not_said_that_others_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(DEFAULT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    said = "what is set by the default of `num_workers` may serve callers elsewhere"
    assert [found.unfixed for found in findings("DLC204")] == [said]


def test_a_subclass_with_arguments_of_its_own_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = "\n\nclass Own(DataLoader):\n    def __init__(self, data):\n        super().__init__(data, num_workers=2)\n"
    write(tmp_path, monkeypatch, "    loader = Own(dataset)", top)
    assert [found.unfixed for found in findings("DLC102")] == ["`Own` has arguments of its own"]


DECLARED = {
    "argparse": ("", "args = parser.parse_args()", "args.workers"),
    "parameter": ("", "", "workers"),
    "dataclass": ("@dataclass\nclass Settings:\n    workers: int = {}\n\n\n", "", "settings.workers"),
}
COMPUTED = ["2", "os.cpu_count()", "min(4, os.cpu_count())", "max(1, os.cpu_count() - 1)", "os.cpu_count() or 1"]


def declared(kind: str, default: str, options: str = "") -> str:
    """A program whose number of workers has a default, which its user or its callers can override."""
    top, parsed, number = DECLARED[kind]
    parameter = {"argparse": "", "parameter": f", workers={default}", "dataclass": ", settings: Settings"}[kind]
    lines = [
        "import argparse, os",
        "from dataclasses import dataclass",
        "from torch.utils.data import DataLoader",
        "",
        "parser = argparse.ArgumentParser()",
        f"parser.add_argument('--workers', type=int, default={default})" if kind == "argparse" else "",
        "",
        f"{top.format(default)}def train(net, dataset{parameter}):",
        f"    {parsed}" if parsed else "    pass",
        f"    loader = DataLoader(dataset, 8, num_workers={number}{options})",
    ]
    return "\n".join(lines) + LOOP


@pytest.mark.parametrize("default", COMPUTED)
@pytest.mark.parametrize("kind", DECLARED)
def test_what_needs_workers_follows_a_number_that_may_be_none(
    kind: str, default: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(declared(kind, default), encoding="utf-8")
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    after = fixed("DLC202")
    assert after == declared(kind, default, f", persistent_workers={DECLARED[kind][2]} > 0")
    (tmp_path / "train.py").write_text(after, encoding="utf-8")
    assert not findings("DLC202")


@pytest.mark.parametrize("default", COMPUTED)
def test_a_start_method_follows_a_number_of_workers_that_may_be_none(
    default: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = dedent(
        """\
        import argparse, os
        import polars as pl
        from torch.utils.data import DataLoader, Dataset

        class Events(Dataset):
            def __init__(self, path):
                self.events = pl.read_parquet(path).unique()

            def __getitem__(self, index):
                return self.events.filter(pl.col("user") == index)["value"].to_numpy().copy()

        parser = argparse.ArgumentParser()
        parser.add_argument("--workers", type=int, default=DEFAULT)
        args = parser.parse_args()
        loader = DataLoader(Events("a"), num_workers=args.workers)
        """
    ).replace("DEFAULT", default)
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    assert 'args.workers, multiprocessing_context="forkserver" if args.workers else None)' in fixed("DLC217")


def test_a_trainer_whose_user_chooses_the_workers_is_not_told_to_keep_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = dedent(
        """\
        import argparse, os
        from transformers import Trainer, TrainingArguments

        parser = argparse.ArgumentParser()
        parser.add_argument("--workers", type=int, default=os.cpu_count())
        args = parser.parse_args()
        arguments = TrainingArguments("out", num_train_epochs=3, dataloader_num_workers=args.workers)
        Trainer(net, arguments, train_dataset=dataset).train()
        """
    )
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    (found,) = (one for one in check(["."], Config(isolated=True)).findings if "persistent" in one.help)
    assert found.unfixed == "the number of its workers is given elsewhere, and may be 0"
