"""What dlcheck says of published training code, line by line: a change of a rule shows as a change of a pin.

``python tests/ecosystem/test_ecosystem.py`` writes the pins anew; read the difference before it is committed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest
import tomli

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ARCHIVES: list[dict[str, Any]] = tomli.loads((HERE / "archives.toml").read_text(encoding="utf-8"))["archive"]


def pin(archive: dict[str, Any]) -> Path:
    return HERE / "pins" / f"{archive['name']}-{archive['version']}.txt"


def unpacked(archive: dict[str, Any], place: Path) -> Path:
    """The folder of an archive's sources, fetched from the index that pip is set up for."""
    wanted = f"{archive['name']}=={archive['version']}"
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", str(place)]
    subprocess.run([*command, "--no-build-isolation", wanted], check=True, capture_output=True)
    (file,) = place.glob("*.tar.gz")
    assert hashlib.sha256(file.read_bytes()).hexdigest() == archive["sha256"]
    with tarfile.open(file) as tar:
        tar.extractall(place / "sources", filter="data")
    (folder,) = (place / "sources").iterdir()
    return folder


def findings(folder: Path) -> str:
    """The concise report on a folder, all default rules, a line for each finding."""
    command = [sys.executable, "-m", "dlcheck", "check", "--isolated", "-q", "--output-format", "concise", "."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stderr
    return run.stdout


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive["name"])
def test_findings_are_those_of_the_pin(archive: dict[str, Any], tmp_path: Path) -> None:
    found = findings(unpacked(archive, tmp_path))
    assert found.splitlines() == pin(archive).read_text(encoding="utf-8").splitlines()


def write_pins() -> None:
    for archive in ARCHIVES:
        with tempfile.TemporaryDirectory() as place:
            pin(archive).write_text(findings(unpacked(archive, Path(place))), encoding="utf-8")


if __name__ == "__main__":
    write_pins()
