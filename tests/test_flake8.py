"""flake8 shows what dlcheck finds."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from dlcheck.flake8 import Plugin

TEXT = dedent("""\
    import torch
    from torch.utils.data import DataLoader


    def train(dataset, net):
        loader = DataLoader(dataset, num_workers=2, pin_memory=True)
        for x in loader:
            x = x.cuda(){comment}
            net(x).backward()
    """)


def test_findings_have_the_places_that_flake8_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    lines = TEXT.format(comment="").splitlines(keepends=True)
    ((line, column, text, _),) = Plugin(None, "train.py", lines).run()
    assert (line, column) == (8, 12)
    assert text.startswith("DLC101 `x.cuda()` blocks although")
    (tmp_path / "pyproject.toml").write_text('[tool.dlcheck]\nfail-on = "error"\n', encoding="utf-8")
    assert list(Plugin(None, "train.py", lines).run()) == []


@pytest.mark.slow
@pytest.mark.parametrize("comment", ["", "  # noqa: DLC101", "  # dlcheck: ignore[DLC101]"])
def test_flake8_itself_shows_them(comment: str, tmp_path: Path) -> None:
    import subprocess

    python = tmp_path / "train.py"
    python.write_text(TEXT.format(comment=comment), encoding="utf-8")
    (tmp_path / "pyproject.toml").touch()
    # As the entry point of the installed package does, which a checkout need not be.
    local = "[flake8]\nmax-line-length = 120\n[flake8:local-plugins]\nextension =\n  DLC = dlcheck.flake8:Plugin\n"
    root = Path(__file__).resolve().parent.parent
    (tmp_path / "setup.cfg").write_text(f"{local}paths = {root}\n", encoding="utf-8")
    command = [sys.executable, "-m", "flake8", "--config", "setup.cfg", "--select", "DLC,F", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    told = [line for line in done.stdout.splitlines() if "F401" not in line]
    expected = [] if comment else ["train.py:8:13: DLC101 `x.cuda()` blocks although `loader` pins its batches"]
    assert sorted(set(told)) == expected, done.stderr
