"""Each limit for real: set for a child process, and told by `dlcheck env` and `dlcheck advise` in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CGROUPS = Path("/sys/fs/cgroup")

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limits are those of Linux"),
    pytest.mark.slow,
]

# Eight images of 37 MiB in a batch: one of them fits into 64 MiB, the four that two workers hold ready do not.
PROGRAM = """\
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.zeros(3, 640, 640)


def train(loader):
    for images in loader:
        torch.tanh(images[0, 0, 0, :4]).sum()
        time.sleep(0.5)  # what is ready piles up
    print("through")


if __name__ == "__main__":
    train(DataLoader(Images(), batch_size=8, num_workers=WORKERS))
"""


def dlcheck(*arguments: str, shell: str = "", inside: Path = ROOT, **variables: str) -> dict[str, Any]:
    """What dlcheck tells as JSON, started by a shell that does something first."""
    command = [sys.executable, "-m", "dlcheck", *arguments, "--output-format", "json"]
    run = subprocess.run(
        ["sh", "-c", f'{shell or ":"} && exec "$@"', "sh", *command],
        cwd=inside,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    document: dict[str, Any] = json.loads(run.stdout)
    return document


def value(document: dict[str, Any], name: str) -> Any:
    return document["facts"][name]["value"]


def bites(document: dict[str, Any]) -> set[str]:
    return {one["fact"] for one in document["warnings"]}


def privileged(*command: str) -> str:
    """Why a command of a private mount namespace cannot be run here; empty where it can."""
    if shutil.which("unshare") is None:
        return "there is no unshare"
    run = subprocess.run(["unshare", "-m", *command], capture_output=True, text=True, check=False)
    return f"no private mounts here: {run.stderr.strip()}" if run.returncode else ""


@contextmanager
def group(controller: str, parent: str = "", **files: str) -> Iterator[str]:
    """A control group of v1 below this process's own, with what its files are to hold; the name of its folder."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            folder = CGROUPS / names / path.strip("/")
            break
    else:
        pytest.skip(f"there is no control group of v1 for {controller}")
    folder = Path(parent) if parent else folder / f"dlcheck-test-{os.getpid()}"
    folder = folder / "inner" if parent else folder
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error.strerror}")
    try:
        for name, text in files.items():
            (folder / f"{controller}.{name}").write_text(text)
        yield str(folder)
    finally:
        folder.rmdir()


def test_open_files() -> None:
    found = dlcheck("env", shell="ulimit -n 1024")
    assert value(found, "open_files") == 1024
    assert "open_files" in bites(found)


def test_locked_memory() -> None:
    assert value(dlcheck("env", shell="ulimit -l 64"), "locked_memory") == 64 << 10


def test_affinity() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2 or shutil.which("taskset") is None:
        pytest.skip("it takes two CPUs and taskset")
    found = dlcheck("env", shell=f"taskset -p -c {cpus[0]} $$ >/dev/null")
    assert (value(found, "affinity"), value(found, "usable_cores")) == (1, 1)
    assert "affinity" in bites(found)


def test_ranks() -> None:
    found = dlcheck("env", LOCAL_WORLD_SIZE="2", OMP_NUM_THREADS="64")
    assert value(found, "ranks") == 2
    assert value(found, "cores_per_rank") == value(found, "usable_cores") / 2
    assert "omp_threads" in bites(found)


def test_quota_of_a_group_and_of_the_one_above_it() -> None:
    with ExitStack() as groups:
        outer = groups.enter_context(group("cpu", cfs_quota_us="50000"))
        inner = groups.enter_context(group("cpu", parent=outer))
        found = dlcheck("env", shell=f"echo $$ > {inner}/tasks")
    assert value(found, "cpu_quota") == 0.5
    assert value(found, "usable_cores") == 0.5
    assert found["facts"]["cpu_quota"]["source"] == f"{outer}/cpu.cfs_quota_us"
    assert "cpu_quota" in bites(found)


def test_cpuset() -> None:
    first = min(os.sched_getaffinity(0))
    with group("cpuset", mems="0", cpus=str(first)) as folder:
        found = dlcheck("env", shell=f"echo $$ > {folder}/tasks")
    assert (value(found, "cpuset"), value(found, "affinity"), value(found, "usable_cores")) == (1, 1, 1)


def test_memory_limit() -> None:
    with group("memory", limit_in_bytes=str(512 << 20)) as folder:
        found = dlcheck("env", shell=f"echo $$ > {folder}/tasks")
    assert value(found, "memory_limit") == 512 << 20
    assert 0 < value(found, "memory_available") < 512 << 20
    assert "memory_limit" in bites(found)


SMALL = "mount -t tmpfs -o size=64m tmpfs /dev/shm"


def in_small_shm(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    shell = ["unshare", "-m", "sh", "-c", f'{SMALL} && exec "$@"', "sh", *command]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(shell, cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=300)


def test_a_small_dev_shm_is_as_bad_as_told(tmp_path: Path) -> None:
    """As written the program dies there; with what is advised it goes through."""
    pytest.importorskip("torch")
    if why := privileged("sh", "-c", SMALL):
        pytest.skip(why)
    (tmp_path / "pyproject.toml").touch()
    program = tmp_path / "train.py"
    program.write_text(PROGRAM.replace("WORKERS", "2"))
    told = in_small_shm(sys.executable, "-m", "dlcheck", "advise", "--output-format", "json", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    (loader,) = json.loads(told.stdout)["loaders"]
    workers = loader["options"]["num_workers"]["value"]
    assert workers == 0
    assert "/dev/shm has 64 MiB" in loader["unfit"][0]
    assert "--shm-size" in loader["refused"][0]
    assert "through" not in in_small_shm(sys.executable, str(program), cwd=tmp_path).stdout
    program.write_text(PROGRAM.replace("WORKERS", str(workers)))
    run = in_small_shm(sys.executable, str(program), cwd=tmp_path)
    assert "through" in run.stdout, run.stderr


@pytest.mark.parametrize(
    ("mount", "kind"),
    [
        ("mount -t tmpfs none mnt", "memory"),
        (
            "mkdir lower upper work && mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work mnt",
            "layer",
        ),
    ],
)
def test_storage(mount: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    (tmp_path / "base").mkdir()
    # An overlay cannot lie on another one: in a container its parts lie in memory.
    script = f"mount -t tmpfs none base && cd base && mkdir mnt && {mount}"
    if why := privileged("sh", "-c", f"cd {tmp_path} && {script}"):
        pytest.skip(why)
    command = [sys.executable, "-m", "dlcheck", "env", str(tmp_path / "base" / "mnt"), "--output-format", "json"]
    run = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'(cd {tmp_path} && {script}) && exec "$@"', "sh", *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert value(json.loads(run.stdout), "storage")["kind"] == kind
