"""The facts of a machine, on recorded trees of others, and what `dlcheck env` prints of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from recorded import DOCKER_V1, GIB, HOST, KUBERNETES, NESTED_V1, Tree, gpu, siblings, system

from dlcheck.advise import env, limits, render
from dlcheck.advise.interpreter import Interpreter
from dlcheck.system import Calls, System

SCHEMA = json.loads((Path(env.__file__).parent / "env.schema.json").read_text(encoding="utf-8"))
PYTHON = Interpreter("/venv/bin/python", "--python", "3.12.4", "2.6.0+cu124", "fork")


def values(machine: System, python: Interpreter | None = PYTHON, path: str = "/") -> dict[str, Any]:
    return {name: fact.value for name, fact in env.facts(machine, path, python).items()}


def bites(machine: System, python: Interpreter | None = PYTHON, path: str = "/") -> dict[str, str]:
    return {one.fact: one.message for one in limits.warnings(env.facts(machine, path, python))}


# Cores


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (HOST, {"visible_cpus": 8, "affinity": 8, "cpu_quota": None, "usable_cores": 8, "cpuset": None}),
        (KUBERNETES, {"visible_cpus": 64, "affinity": 64, "cpu_quota": 8, "usable_cores": 8}),
        (DOCKER_V1, {"visible_cpus": 16, "affinity": 16, "cpuset": 4, "cpu_quota": 1.5, "usable_cores": 1.5}),
        (NESTED_V1, {"visible_cpus": None, "affinity": 16, "cpu_quota": 4, "usable_cores": 4}),
        ({**HOST, **siblings({cpu: f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)})}, {"physical_cores": 4}),
        ({**HOST, "proc/self/status": "Cpus_allowed_list:\t2,4-5\n"}, {"affinity": 3, "usable_cores": 3}),
        (
            {**HOST, "sys/fs/cgroup/user.slice/cpuset.cpus.effective": "0-1"},
            {"affinity": 8, "cpuset": 2, "usable_cores": 2},
        ),
    ],
    ids=["host", "v2, nested", "v1 in a container", "v1, nested", "two threads a core", "affinity", "v2 cpuset"],
)
def test_the_least_of_all_limits_counts(tree: Tree, expected: dict[str, Any], tmp_path: Path) -> None:
    found = values(system(tmp_path, tree))
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("tree", "name", "source"),
    [
        (KUBERNETES, "cpu_quota", "/sys/fs/cgroup/kubepods/pod1/cpu.max"),
        (KUBERNETES, "memory_limit", "/sys/fs/cgroup/kubepods/pod1/memory.max"),
        (DOCKER_V1, "cpu_quota", "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us"),
        (DOCKER_V1, "container", "/.dockerenv"),
        (NESTED_V1, "memory_limit", "/sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes"),
        (HOST, "affinity", "/proc/self/status"),
    ],
)
def test_a_fact_names_its_file(tree: Tree, name: str, source: str, tmp_path: Path) -> None:
    assert env.facts(system(tmp_path, tree), "/", PYTHON)[name].source == source


def test_a_quota_below_what_can_be_seen_bites(tmp_path: Path) -> None:
    assert bites(system(tmp_path, KUBERNETES))["cpu_quota"].startswith("64 CPUs to see, 8 to use")


def test_an_affinity_below_what_can_be_seen_bites(tmp_path: Path) -> None:
    narrow = {**HOST, "proc/self/status": "Cpus_allowed_list:\t0-1\n"}
    assert "os.cpu_count() says 8, and 2 may be used" in bites(system(tmp_path, narrow))["affinity"]


@pytest.mark.parametrize(
    ("variables", "ranks", "each"),
    [
        ({}, None, 8),
        ({"LOCAL_WORLD_SIZE": "4"}, 4, 2),
        ({"SLURM_NTASKS_PER_NODE": "2"}, 2, 4),
        ({"SLURM_TASKS_PER_NODE": "8(x2)"}, 8, 1),
        ({"SLURM_TASKS_PER_NODE": "2,1"}, 2, 4),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 2, 4),
        ({"LOCAL_WORLD_SIZE": "many"}, None, 8),
        ({"LOCAL_WORLD_SIZE": "0"}, None, 8),
        ({"SLURM_NTASKS_PER_NODE": "4", "SLURM_STEP_ID": "0", "SLURM_CPUS_PER_TASK": "8"}, 4, 8),
        ({"SLURM_NTASKS_PER_NODE": "4", "SLURM_STEP_ID": "0", "SLURM_CPUS_PER_TASK": "2"}, 4, 2),
    ],
)
def test_ranks_share_the_cores(variables: dict[str, str], ranks: int | None, each: float, tmp_path: Path) -> None:
    found = values(system(tmp_path, HOST, environ=variables))
    assert (found["ranks"], found["cores_per_rank"]) == (ranks, each)


def test_less_than_a_core_for_each_rank_bites(tmp_path: Path) -> None:
    assert "16 ranks share 8 cores" in bites(system(tmp_path, HOST, environ={"LOCAL_WORLD_SIZE": "16"}))["ranks"]


def test_threads_of_all_ranks_are_counted(tmp_path: Path) -> None:
    variables = {"OMP_NUM_THREADS": "4,2", "LOCAL_WORLD_SIZE": "4"}
    machine = system(tmp_path, HOST, environ=variables)
    assert values(machine)["omp_threads"] == 4
    assert "4 threads in each of 4 ranks on 8 usable cores" in bites(machine)["omp_threads"]
    assert "omp_threads" not in bites(system(tmp_path, HOST, environ={"OMP_NUM_THREADS": "8"}))


# Memory and files


def test_memory_is_what_the_control_group_has_left(tmp_path: Path) -> None:
    found = values(system(tmp_path, KUBERNETES))
    assert found["memory_limit"] == 64 * GIB
    assert found["memory_available"] == (64 - 20 + 10) * GIB  # a cache that can be dropped is free


def test_memory_of_v1_is_walked_to_the_root(tmp_path: Path) -> None:
    assert values(system(tmp_path / "a", NESTED_V1))["memory_limit"] == 4 * GIB
    assert values(system(tmp_path / "b", DOCKER_V1))["memory_available"] == 8 * GIB


@pytest.mark.parametrize(
    ("tree", "variables", "remedy"),
    [
        (DOCKER_V1, {}, "--shm-size=8g"),
        (HOST, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "medium: Memory"),
        (KUBERNETES, {}, "medium: Memory"),
        (HOST, {}, "mount it anew"),
    ],
)
def test_a_small_dev_shm_bites(tree: Tree, variables: dict[str, str], remedy: str, tmp_path: Path) -> None:
    small = system(tmp_path, tree, shared_memory=(64 << 20, 60 << 20), environ=variables)
    told = bites(small)["shm_total"]
    assert "/dev/shm has 64 MiB" in told
    assert remedy in told
    assert "shm_total" not in bites(system(tmp_path, tree, shared_memory=(65 << 20, 65 << 20)))


def test_a_thousand_open_files_bite(tmp_path: Path) -> None:
    assert "ulimit -n 65536" in bites(system(tmp_path, HOST, open_files=1024))["open_files"]
    assert "open_files" not in bites(system(tmp_path, HOST, open_files=1025))
    assert values(system(tmp_path, HOST, open_files=-1))["open_files"] == "unlimited"


# Software and devices


def test_an_interpreter_without_torch_bites(tmp_path: Path) -> None:
    without = Interpreter("/usr/bin/python3", "runs dlcheck", "3.12.4", None, "fork")
    assert "--python" in bites(system(tmp_path, HOST), without)["torch"]
    broken = Interpreter("/nowhere", "--python", problem="/nowhere: No such file or directory")
    assert bites(system(tmp_path, HOST), broken)["python"] == "/nowhere: No such file or directory"


def test_a_build_without_cuda_bites_where_there_is_a_gpu(tmp_path: Path) -> None:
    machine = system(tmp_path, {**HOST, **gpu("0000:3b:00.0")})
    cpu = Interpreter("/venv/bin/python", "--python", "3.12.4", "2.6.0+cpu", "fork")
    assert "without CUDA" in bites(machine, cpu)["torch"]
    assert "torch" not in bites(machine, PYTHON)


@pytest.mark.parametrize(
    ("variable", "left"),
    [(None, 2), ("0", 1), ("0,1", 2), ("", 0), ("-1", 0), ("1,7,0", 1), ("GPU-3f2a", 1)],
)
def test_hidden_gpus_do_not_count(variable: str | None, left: int, tmp_path: Path) -> None:
    environ = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    machine = system(tmp_path, {**HOST, **gpu("0000:3b:00.0"), **gpu("0000:5e:00.0")}, environ=environ)
    assert len(values(machine)["gpus"]) == left


def test_a_system_without_proc_tells_what_its_calls_do(tmp_path: Path) -> None:
    told = Calls(platform="darwin", cpus=10, cores=8, memory=(16 * GIB, 4 * GIB), open_files=256, locked_memory=-1)
    machine = System(str(tmp_path), told)
    found = values(machine)
    known = {"visible_cpus": 10, "physical_cores": 8, "usable_cores": 8, "memory_total": 16 * GIB,
             "memory_available": 4 * GIB, "open_files": 256, "locked_memory": "unlimited"}  # fmt: skip
    assert {name: found[name] for name in known} == known
    unknown = ("affinity", "cpuset", "cpu_quota", "ranks", "memory_limit", "shm_total", "shm_free", "storage", "gpus")
    assert [name for name in unknown if found[name] is not None] == []
    assert "open_files" not in bites(machine)  # tensors are not shared by descriptors there


def test_a_system_that_tells_nothing(tmp_path: Path) -> None:
    facts = env.facts(System(str(tmp_path)), "/data", None)
    assert {name for name, fact in facts.items() if fact.value is not None} == set()
    assert all(fact.source for fact in facts.values())
    assert limits.warnings(facts) == []
    assert "unknown" in render.env_as_text(facts)


# What is printed


@pytest.mark.parametrize(
    "tree", [HOST, KUBERNETES, DOCKER_V1, NESTED_V1, {}], ids=["host", "k8s", "v1", "slurm", "bare"]
)
def test_json_is_as_the_schema_says(tree: Tree, tmp_path: Path) -> None:
    facts = env.facts(system(tmp_path, {**tree, **gpu("0000:3b:00.0")}), "/", PYTHON)
    document = json.loads(json.dumps(render.env_as_json(facts)))
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(document, SCHEMA)
    text = render.env_as_text(facts)
    assert all(f"{name.replace('_', ' ')} " in text for name in facts)
    assert all(one["message"].split()[0] in text for one in document["warnings"])


def test_text_reads_as_people_write(tmp_path: Path) -> None:
    machine = system(tmp_path, {**KUBERNETES, **gpu("0000:3b:00.0")}, shared_memory=(64 << 20, 64 << 20))
    text = render.env_as_text(env.facts(machine, "/", PYTHON))
    assert "memory limit      64 GiB  [/sys/fs/cgroup/kubepods/pod1/memory.max]" in text
    assert "gpus              NVIDIA GPU, PCIe 5 x16, 63 GB/s each way" in text
    assert "storage           layer: overlay of overlay on /" in text
    assert "warning: shm total: /dev/shm has 64 MiB" in text
