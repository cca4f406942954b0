"""On what kind of storage a path lies, as far as the kernel tells."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dlcheck.system import System

# virtual: a disk of a virtual machine, behind which may be anything; layer: a container's own file system.
Kind = Literal["ssd", "disk", "virtual", "memory", "layer", "network", "unknown"]

_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "ceph", "beegfs", "beegfs_nodev", "glusterfs", "9p",
     "afs", "orangefs", "pvfs2", "wekafs", "panfs", "virtiofs", "vboxsf", "prl_fs", "ncpfs", "ocfs2", "gfs2"}
)  # fmt: skip
# Of file systems in user space the name behind "fuse." tells; these lie on disks of this machine.
_LOCAL_FUSE = frozenset({"ntfs", "ntfs-3g", "exfat", "lxcfs", "bindfs", "encfs", "gocryptfs", "mergerfs", "unionfs",
                         "squashfuse", "fuse-overlayfs", "portal"})  # fmt: skip
_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
_LAYERS = frozenset({"overlay", "aufs", "fuse.fuse-overlayfs"})


@dataclass(frozen=True, slots=True)
class Storage:
    """``why`` says by what the kind is known, or why it is not."""

    kind: Kind
    mount: str
    filesystem: str
    device: str
    why: str


class _Mount(NamedTuple):
    number: str  # of the device: "major:minor"
    point: str
    filesystem: str
    device: str


def storage_of(system: System, path: str) -> Storage | None:
    """The storage under an absolute path; None where the kernel lists no mounts."""
    mount = _mount_of(system, path)
    if mount is None:
        return None
    kind, why = _kind(system, mount)
    return Storage(kind, mount.point, mount.filesystem, mount.device, why)


def _mount_of(system: System, path: str) -> _Mount | None:
    """The mount with the longest name that holds the path; of those at one place the last hides the others."""
    found: _Mount | None = None
    for line in (system.read("/proc/self/mountinfo") or "").splitlines():
        before, dash, after = line.partition(" - ")
        words, rest = before.split(), after.split()
        if not dash or len(words) < 5 or len(rest) < 2:
            continue
        point = _unescaped(words[4])
        holds = point == "/" or path == point or path.startswith(point + "/")
        if holds and (found is None or len(point) >= len(found.point)):
            found = _Mount(words[2], point, rest[0], _unescaped(rest[1]))
    return found


def _unescaped(text: str) -> str:
    """Spaces and the like are written in octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _kind(system: System, mount: _Mount) -> tuple[Kind, str]:
    kind = mount.filesystem
    if kind in _MEMORY:
        return "memory", f"{kind} lies in memory"
    if kind in _LAYERS:
        return "layer", f"{kind}: a container's layer, on a device that it does not show"
    if kind in _NETWORK:
        return "network", f"{kind} reads over the network or from the host"
    if kind.startswith("fuse."):
        name = kind.removeprefix("fuse.")
        if name in _LOCAL_FUSE:
            return "unknown", f"{kind} lies on another file system of this machine"
        return "network", f"{kind} is a program that serves files, mostly from elsewhere"
    if kind in ("fuse", "fuseblk"):
        return "unknown", f"{kind} is served by a program that does not say from where"
    return _of_device(system, mount)


def _of_device(system: System, mount: _Mount) -> tuple[Kind, str]:
    folder = _block(system, mount)
    if folder is None:
        return "unknown", f"{mount.filesystem} on {mount.device}, of which the kernel tells no more"
    for _ in range(4):  # from a mapped device or an array to one that it lies on
        below = sorted(_listed(os.path.join(folder, "slaves")))
        if not below:
            break
        folder = _whole_disk(os.path.realpath(os.path.join(folder, "slaves", below[0])))
    name = os.path.basename(folder)
    rotates = _line(os.path.join(folder, "queue", "rotational"))
    if name.startswith(("vd", "xvd")):
        told = f", rotational={rotates}, which the host may set either way" if rotates is not None else ""
        return "virtual", f"{name}: a disk of a virtual machine{told}"
    if name.startswith("nvme"):
        return "ssd", f"{name}: NVMe"
    if rotates is None:
        return "unknown", f"{name}, of which the kernel does not say whether it rotates"
    return ("disk" if rotates == "1" else "ssd"), f"{name}: rotational={rotates}"


def _block(system: System, mount: _Mount) -> str | None:
    """The folder of the disk that a mount lies on, below ``root``."""
    candidates = [f"/sys/dev/block/{mount.number}"]
    if mount.device.startswith("/dev/"):  # btrfs has a number of its own
        device = os.path.realpath(mount.device) if system.root == "/" else mount.device
        candidates.append(f"/sys/class/block/{os.path.basename(device)}")
    for candidate in candidates:
        folder = system.path(candidate)
        if os.path.isdir(folder):
            return _whole_disk(os.path.realpath(folder))
    return None


def _whole_disk(folder: str) -> str:
    """A partition has no queue: the disk above it has."""
    above = os.path.dirname(folder)
    has_none = not os.path.isdir(os.path.join(folder, "queue")) and os.path.isdir(os.path.join(above, "queue"))
    return above if has_none else folder


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _line(file: str) -> str | None:
    try:
        with open(file) as stream:
            return stream.readline().strip()
    except (OSError, UnicodeDecodeError):
        return None
