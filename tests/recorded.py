"""Trees of other machines, as far as dlcheck reads them, and systems that show them."""

from __future__ import annotations

from pathlib import Path

from dlcheck.system import Calls, System

Tree = dict[str, str]
GIB = 1 << 30

HOST: Tree = {
    "sys/devices/system/cpu/online": "0-7",
    "proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-7\n",
    "proc/meminfo": "MemTotal:       33554432 kB\nMemFree: 1 kB\nMemAvailable:   25165824 kB\n",
    "proc/self/cgroup": "0::/user.slice/app-3.scope",
    "proc/self/mountinfo": (
        "22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"
        "23 22 0:22 / /proc rw - proc proc rw\n"
        "30 22 0:40 / /mnt/my\\040data rw,relatime - nfs4 filer:/export/data rw,vers=4.2\n"
        "31 22 0:25 / /dev/shm rw - tmpfs tmpfs rw\n"
        "32 22 8:17 / /mnt/disk rw - xfs /dev/sdb1 rw\n"
    ),
}
KUBERNETES: Tree = {
    "sys/devices/system/cpu/online": "0-63",
    "proc/self/status": "Cpus_allowed_list:\t0-63\n",
    "proc/meminfo": "MemTotal:      528482304 kB\nMemAvailable:  500000000 kB\n",
    "proc/self/cgroup": "0::/kubepods/pod1/box",
    "proc/1/cgroup": "0::/kubepods/pod1/box",
    "sys/fs/cgroup/kubepods/pod1/box/cpu.max": "max 100000",
    "sys/fs/cgroup/kubepods/pod1/cpu.max": "800000 100000",
    "sys/fs/cgroup/kubepods/cpu.max": "6000000 100000",
    "sys/fs/cgroup/kubepods/pod1/box/memory.max": "max",
    "sys/fs/cgroup/kubepods/pod1/memory.max": "68719476736",
    "sys/fs/cgroup/kubepods/pod1/memory.current": "21474836480",
    "sys/fs/cgroup/kubepods/pod1/memory.stat": "anon 1\ninactive_file 10737418240\n",
    "proc/self/mountinfo": "22 1 0:50 / / rw - overlay overlay rw,lowerdir=/a\n",
}
DOCKER_V1: Tree = {  # without a namespace of its own: the path is the host's, the files lie at the mount
    "sys/devices/system/cpu/online": "0-15",
    "proc/self/status": "Cpus_allowed_list:\t0-15\n",
    "proc/meminfo": "MemTotal: 67108864 kB\nMemAvailable: 60000000 kB\n",
    "proc/self/cgroup": "6:cpuset:/docker/abc\n4:cpu,cpuacct:/docker/abc\n3:memory:/docker/abc\n0::/",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "150000",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
    "sys/fs/cgroup/cpuset/cpuset.cpus": "0-3",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "8589934592",
    ".dockerenv": "",
}
NESTED_V1: Tree = {
    "proc/self/status": "Cpus_allowed_list:\t0-15\n",
    "proc/self/cgroup": "4:cpu,cpuacct:/slurm/job_7/step_0\n3:memory:/slurm/job_7/step_0",
    "sys/fs/cgroup/cpu,cpuacct/slurm/job_7/step_0/cpu.cfs_quota_us": "-1",
    "sys/fs/cgroup/cpu,cpuacct/slurm/job_7/step_0/cpu.cfs_period_us": "100000",
    "sys/fs/cgroup/cpu,cpuacct/slurm/job_7/cpu.cfs_quota_us": "400000",
    "sys/fs/cgroup/cpu,cpuacct/slurm/job_7/cpu.cfs_period_us": "100000",
    "sys/fs/cgroup/memory/slurm/job_7/step_0/memory.limit_in_bytes": "9223372036854771712",
    "sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes": "4294967296",
    "proc/meminfo": "MemTotal: 67108864 kB\nMemAvailable: 60000000 kB\n",
}


def siblings(pairs: dict[int, str]) -> Tree:
    return {f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": text for cpu, text in pairs.items()}


def gpu(address: str, *, vendor: str = "0x10de", kind: str = "0x030200", speed: str = "32.0", width: int = 16) -> Tree:
    folder = f"sys/bus/pci/devices/{address}"
    return {
        f"{folder}/vendor": vendor,
        f"{folder}/class": kind,
        f"{folder}/max_link_speed": f"{speed} GT/s PCIe",
        f"{folder}/max_link_width": str(width),
    }


def planted(folder: Path, tree: Tree) -> Path:
    for name, text in tree.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def system(folder: Path, tree: Tree, **calls: object) -> System:
    """A system that shows a tree; ``calls`` are what it tells otherwise."""
    told = {"platform": "linux", "shared_memory": (16 * GIB, 16 * GIB), "open_files": 1 << 20, **calls}
    return System(str(planted(folder, tree)), Calls(**told))  # type: ignore[arg-type]
