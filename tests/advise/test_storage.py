"""On what a path lies, told by recorded mounts and disks."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded import HOST, planted, system

from dlcheck.advise.storage import storage_of


def mounted(point: str, kind: str, device: str = "none", number: str = "0:99") -> str:
    return f"22 1 {number} / {point} rw,relatime shared:1 - {kind} {device} rw\n"


@pytest.mark.parametrize(
    ("filesystem", "kind"),
    [
        ("nfs", "network"), ("nfs4", "network"), ("cifs", "network"), ("smb3", "network"), ("lustre", "network"),
        ("ceph", "network"), ("9p", "network"), ("virtiofs", "network"), ("gpfs", "network"), ("beegfs", "network"),
        ("fuse.s3fs", "network"), ("fuse.mountpoint-s3", "network"), ("fuse.gcsfuse", "network"),
        ("fuse.juicefs", "network"), ("fuse.sshfs", "network"), ("fuse.ntfs-3g", "unknown"), ("fuseblk", "unknown"),
        ("tmpfs", "memory"), ("ramfs", "memory"), ("overlay", "layer"), ("aufs", "layer"), ("ext4", "unknown"),
    ],
)  # fmt: skip
def test_a_file_system_tells_its_kind(filesystem: str, kind: str, tmp_path: Path) -> None:
    machine = system(tmp_path, {"proc/self/mountinfo": mounted("/", "ext4") + mounted("/data", filesystem)})
    found = storage_of(machine, "/data/train")
    assert found is not None
    assert (found.kind, found.mount, found.filesystem) == (kind, "/data", filesystem)
    assert found.why


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/data", "/"),
        ("/mnt/my data/train", "/mnt/my data"),
        ("/mnt/my data", "/mnt/my data"),
        ("/mnt/my databases", "/"),
        ("/dev/shm/x", "/dev/shm"),
    ],
)
def test_the_longest_mount_holds_a_path(path: str, mount: str, tmp_path: Path) -> None:
    found = storage_of(system(tmp_path, HOST), path)
    assert found is not None
    assert found.mount == mount


def test_of_mounts_at_one_place_the_last_hides_the_others(tmp_path: Path) -> None:
    text = mounted("/", "ext4") + mounted("/data", "tmpfs") + mounted("/data", "nfs")
    found = storage_of(system(tmp_path, {"proc/self/mountinfo": text}), "/data")
    assert found is not None
    assert found.filesystem == "nfs"


@pytest.mark.parametrize(
    ("name", "number", "rotational", "kind"),
    [
        ("nvme0n1", "259:2", "0", "ssd"),
        ("sda", "8:1", "0", "ssd"),
        ("sdb", "8:17", "1", "disk"),
        ("vda", "254:0", "1", "virtual"),
        ("xvda", "202:1", "0", "virtual"),
        ("sdc", "8:33", None, "unknown"),
    ],
)
def test_a_disk_tells_whether_it_turns(
    name: str, number: str, rotational: str | None, kind: str, tmp_path: Path
) -> None:
    partition = f"sys/devices/pci/{name}/{name}1"
    tree = {"proc/self/mountinfo": mounted("/", "ext4", f"/dev/{name}1", number), f"{partition}/partition": "1",
            f"sys/devices/pci/{name}/queue/hw_sector_size": "512"}  # fmt: skip
    if rotational is not None:
        tree[f"sys/devices/pci/{name}/queue/rotational"] = rotational
    machine = system(tmp_path, tree)
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / "sys/dev/block" / number).symlink_to(tmp_path / partition)
    found = storage_of(machine, "/data")
    assert found is not None
    assert found.kind == kind
    assert name in found.why


def test_a_mapped_device_is_what_it_lies_on(tmp_path: Path) -> None:
    """LVM on an encrypted SSD, on a file system whose number no disk has."""
    machine = system(tmp_path, {"proc/self/mountinfo": mounted("/", "btrfs", "/dev/dm-1", "0:31")})
    disks = planted(
        tmp_path / "sys/devices",
        {"dm-1/queue/rotational": "1", "dm-0/queue/rotational": "1", "nvme1n1/queue/rotational": "0"},
    )
    (disks / "nvme1n1/nvme1n1p3").mkdir()
    for above, below in (("dm-1", "dm-0"), ("dm-0", "nvme1n1/nvme1n1p3")):
        (disks / above / "slaves").mkdir()
        (disks / above / "slaves" / Path(below).name).symlink_to(disks / below)
    (tmp_path / "sys/class/block").mkdir(parents=True)
    (tmp_path / "sys/class/block/dm-1").symlink_to(disks / "dm-1")
    found = storage_of(machine, "/data")
    assert found is not None
    assert (found.kind, found.why) == ("ssd", "nvme1n1: NVMe")


def test_a_system_that_lists_no_mounts(tmp_path: Path) -> None:
    assert storage_of(system(tmp_path, {}), "/data") is None
    assert storage_of(system(tmp_path, {"proc/self/mountinfo": "nonsense\n1 2 3 - x\n"}), "/data") is None
