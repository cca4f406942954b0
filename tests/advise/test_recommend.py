"""What is recommended: the table that the formulas were held against, and what holds whatever is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcheck.advise.known import DatasetFacts, MachineFacts
from dlcheck.advise.recommend import needs, recommend

GIB = 1 << 30
IMAGE = 3 * 224 * 224 * 4

VM = MachineFacts(cores=2, memory=20 * GIB, shm=11 * GIB, shm_total=11 * GIB, open_files=1 << 20, gpus=0)
WORKSTATION = MachineFacts(cores=16, memory=120 * GIB, shm=62 * GIB, shm_total=62 * GIB, open_files=1 << 20, gpus=1)
CONTAINER = MachineFacts(
    cores=8, memory=60 * GIB, shm=64 << 20, shm_total=64 << 20, open_files=1 << 20, gpus=1, container="docker"
)
NODE = MachineFacts(
    cores=12, ranks=8, memory=900 * GIB, shm=1000 * GIB, shm_total=1000 * GIB, open_files=1 << 20, gpus=8
)
SLURM = MachineFacts(cores=6, memory=60 * GIB, shm=60 * GIB, shm_total=60 * GIB, open_files=1 << 20, gpus=1)
FORKSERVER = replace(WORKSTATION, memory=60_000_000_000, start_method="forkserver")

IMAGES = DatasetFacts(
    batch_size=64,
    sample_bytes=IMAGE,
    samples=1_281_167,
    cpu_s=8e-3,
    step_s=0.18,
    device="cuda",
    passes=90,
    decodes=True,
)
FAST = replace(IMAGES, step_s=0.04)
NFS = replace(IMAGES, cpu_s=2e-3, wait_s=30e-3, step_s=0.1)
TENSORS = DatasetFacts(
    batch_size=128, sample_bytes=12 << 10, cpu_s=5e-6, step_s=5e-3, device="cuda", looks_up=True, held="tensor"
)
EAGER = replace(IMAGES, cpu_s=2e-3, step_s=0.05, held="array", held_bytes=10 * GIB)


# Workers, prefetch_factor, MiB of /dev/shm, GiB of memory, what binds, and whether even all cores cannot feed the step.
# Of the container the study counts a pinned batch, which it has not without workers: 0.1 GiB there, 0.0 here.
@pytest.mark.parametrize(
    ("machine", "dataset", "workers", "prefetch", "shm", "memory", "binding", "cpu_bound"),
    [
        (VM, IMAGES, 2, 2, 220, 0.5, "cores", True),
        (VM, FAST, 2, 2, 220, 0.5, "cores", True),
        (VM, NFS, 26, 2, 2866, 6.2, None, False),
        (VM, TENSORS, 0, None, 0, 0.0, None, False),
        (WORKSTATION, IMAGES, 4, 2, 441, 1.3, None, False),
        (WORKSTATION, FAST, 16, 2, 1764, 5.0, None, False),
        (WORKSTATION, NFS, 26, 2, 2866, 8.1, None, False),
        (WORKSTATION, TENSORS, 0, None, 0, 0.0, None, False),
        (WORKSTATION, EAGER, 4, 2, 441, 1.3, None, False),
        (CONTAINER, IMAGES, 0, None, 0, 0.0, "/dev/shm", False),
        (CONTAINER, FAST, 0, None, 0, 0.0, "/dev/shm", True),
        (CONTAINER, NFS, 0, None, 0, 0.0, "/dev/shm", False),
        (CONTAINER, TENSORS, 0, None, 0, 0.0, None, False),
        (NODE, IMAGES, 4, 2, 3528, 10.4, None, False),
        (NODE, FAST, 12, 2, 10584, 30.1, "cores", True),
        (NODE, NFS, 26, 2, 22932, 64.5, None, False),
        (NODE, TENSORS, 0, None, 0, 0.0, None, False),
        (SLURM, IMAGES, 4, 2, 441, 1.3, None, False),
        (SLURM, FAST, 6, 2, 661, 1.9, "cores", True),
        (SLURM, NFS, 26, 2, 2866, 8.1, None, False),
        (FORKSERVER, EAGER, 3, 2, 330, 31.2, "memory", False),
    ],
)
def test_the_table(
    machine: MachineFacts, dataset: DatasetFacts, workers: int, prefetch: int | None, shm: int, memory: float,
    binding: str | None, cpu_bound: bool,
) -> None:  # fmt: skip
    found = recommend(dataset, machine)
    assert (found.num_workers.value, found.prefetch_factor.value) == (workers, prefetch)
    assert found.shm is not None
    assert found.memory is not None
    assert int(found.shm / (1 << 20)) == shm
    assert round(found.memory / GIB, 1) == memory
    assert (found.binding.name if found.binding else None) == binding
    assert any("CPU-bound" in line for line in found.warnings) is cpu_bound


def test_a_container_is_told_how_much_shared_memory_it_takes() -> None:
    (told,) = recommend(IMAGES, CONTAINER).refused
    assert "4 workers would keep up to 441 MiB" in told
    assert "--shm-size=896m" in told
    (told,) = recommend(NFS, replace(CONTAINER, container="kubepods")).refused
    assert "sizeLimit: 6Gi" in told
    assert recommend(IMAGES, replace(CONTAINER, shm=896 << 20, shm_total=896 << 20)).num_workers.value == 4


def test_data_in_memory_is_refused_nothing() -> None:
    found = recommend(TENSORS, CONTAINER)
    assert (found.num_workers.value, found.refused) == (0, ())


# What only a measurement can tell


def test_without_a_time_decoding_has_bounds() -> None:
    found = recommend(replace(IMAGES, cpu_s=None, step_s=None, work="`Image.open`, data.py:7"), WORKSTATION)
    knob = found.num_workers
    assert (knob.value, knob.span, knob.basis) == (16, (1, 16), "estimate")
    assert "data.py:7" in knob.why
    assert found.would_change[:2] == ("the time of a sample", "the time of a step")


def test_without_a_step_all_cores_may_be_worth_it() -> None:
    knob = recommend(replace(IMAGES, step_s=None), WORKSTATION).num_workers
    assert (knob.value, knob.span, knob.basis) == (16, (1, 16), "measured")


def test_of_unknown_work_nobody_can_tell() -> None:
    knob = recommend(DatasetFacts(batch_size=64), WORKSTATION).num_workers
    assert (knob.value, knob.span, knob.basis) == (None, (0, 16), "open")


def test_network_storage_can_take_more_workers_than_cores() -> None:
    unmeasured = replace(IMAGES, cpu_s=None, step_s=None)
    knob = recommend(unmeasured, replace(WORKSTATION, storage="network")).num_workers
    assert knob.value == 16
    assert knob.span is not None
    assert knob.span[1] > 16


def test_of_a_machine_that_tells_nothing_there_is_nothing_to_say() -> None:
    found = recommend(DatasetFacts(), MachineFacts())
    assert (found.num_workers.value, found.num_workers.basis, found.caps) == (None, "open", ())
    assert found.pin_memory.basis == "open" or found.pin_memory.value is False


# The other options


@pytest.mark.parametrize(
    ("changes", "machine", "value"),
    [
        ({}, WORKSTATION, True),
        ({}, VM, True),  # for the machine that it is written for
        ({"device": ""}, VM, False),
        ({"device": ""}, WORKSTATION, None),
        ({"device": "", "moved_by": "Lightning"}, WORKSTATION, True),
        ({"device": "cpu"}, WORKSTATION, False),
        ({"device": "mps"}, VM, False),
        ({"on_gpu": True}, WORKSTATION, False),
        ({"looks_up": True, "cpu_s": None}, WORKSTATION, False),  # without workers the main process would pin
    ],
)
def test_pinning(changes: dict[str, object], machine: MachineFacts, value: bool | None) -> None:
    found = recommend(replace(IMAGES, **changes), machine)  # type: ignore[arg-type]
    assert found.pin_memory.value is value
    if value is False:
        assert found.non_blocking.value is False


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({}, True),
        ({"passes": 1}, False),
        ({"passes": None}, True),
        ({"passes": None, "repeats": False}, False),
        ({"changes": "the program changes it"}, False),
        ({"looks_up": True, "cpu_s": None}, False),
    ],
)
def test_keeping_workers(changes: dict[str, object], value: bool) -> None:
    assert recommend(replace(IMAGES, **changes), WORKSTATION).persistent_workers.value is value  # type: ignore[arg-type]


def test_a_framework_copies_its_batches_itself() -> None:
    assert recommend(replace(IMAGES, moved_by="accelerate"), WORKSTATION).non_blocking.value is None


@pytest.mark.parametrize(("variation", "factor"), [(None, 2), (0.1, 2), (0.3, 4), (2.0, 4)])
def test_uneven_batches_are_prefetched_further(variation: float | None, factor: int) -> None:
    assert recommend(replace(IMAGES, variation=variation), WORKSTATION).prefetch_factor.value == factor


def test_less_is_prefetched_where_shared_memory_is_short() -> None:
    """Four workers with two batches each fit into half of a gigabyte; with four each they do not."""
    short = replace(WORKSTATION, shm=1 << 30, shm_total=1 << 30)
    knob = recommend(replace(IMAGES, variation=0.5), short).prefetch_factor
    assert knob.value == 2
    assert "1 GiB" in knob.why


def test_a_stream_that_nobody_shares_out_gets_one_worker() -> None:
    found = recommend(replace(FAST, repeats_in_workers=True), WORKSTATION)
    assert (found.num_workers.value, found.binding and found.binding.name) == (1, "stream")


def test_samples_on_the_gpu_are_made_in_the_main_process() -> None:
    found = recommend(replace(IMAGES, on_gpu=True), WORKSTATION)
    assert (found.num_workers.value, found.num_workers.basis) == (0, "known")


@pytest.mark.parametrize(
    ("held", "method", "copies"),
    [("array", "fork", 0), ("array", "spawn", 4), ("objects", "fork", 4), ("objects", "forkserver", 4),
     ("tensor", "spawn", 0), ("tensor", "fork", 0)],
)  # fmt: skip
def test_what_workers_copy_of_a_dataset(held: str, method: str, copies: int) -> None:
    data = replace(IMAGES, held=held, held_bytes=GIB, start_method=method)  # type: ignore[arg-type]
    memory, _ = needs(data, WORKSTATION, 4, 2)
    without, _ = needs(replace(data, held_bytes=None), WORKSTATION, 4, 2)
    assert memory is not None
    assert without is not None
    assert memory - without == copies * GIB


# What holds whatever is known

seconds = st.none() | st.floats(1e-6, 10)
sizes = st.none() | st.integers(1, 1 << 40)
datasets = st.builds(
    DatasetFacts, batch_size=st.none() | st.integers(1, 4096), sample_bytes=st.none() | st.integers(1, 1 << 28),
    samples=st.none() | st.integers(1, 10**8), cpu_s=seconds, wait_s=seconds, step_s=seconds,
    variation=st.none() | st.floats(0, 3), looks_up=st.booleans(), decodes=st.booleans(),
    held=st.sampled_from(["", "array", "objects", "tensor"]), held_bytes=sizes,
    device=st.sampled_from(["", "cuda", "cpu", "mps"]), moved_by=st.sampled_from(["", "Lightning"]),
    on_gpu=st.booleans(), passes=st.none() | st.integers(0, 100), repeats=st.none() | st.booleans(),
    repeats_in_workers=st.booleans(), start_method=st.sampled_from(["", "fork", "spawn", "forkserver"]),
)  # fmt: skip
machines = st.builds(
    MachineFacts, cores=st.none() | st.floats(0.01, 512), ranks=st.integers(1, 64), memory=sizes, shm=sizes,
    shm_total=sizes, open_files=st.none() | st.integers(0, 1 << 20), gpus=st.none() | st.integers(0, 16),
    start_method=st.sampled_from(["fork", "spawn", "forkserver"]),
    storage=st.sampled_from(["", "network", "ssd"]), container=st.sampled_from(["", "docker", "kubepods"]),
)  # fmt: skip


@given(datasets, machines)
def test_no_cap_is_passed_and_every_option_has_a_reason(dataset: DatasetFacts, machine: MachineFacts) -> None:
    found = recommend(dataset, machine)
    knob = found.num_workers
    top = max(knob.value if isinstance(knob.value, int) else 0, knob.span[1] if knob.span else 0)
    waits = machine.storage == "network" and knob.basis == "estimate"
    for cap in found.caps:
        assert top <= cap.workers or cap.name == "cores" and waits
    if knob.span:
        assert knob.span[0] <= knob.span[1]
    if isinstance(knob.value, int) and knob.span:
        assert knob.span[0] <= knob.value <= knob.span[1]
    options = (knob, found.prefetch_factor, found.pin_memory, found.persistent_workers, found.non_blocking,
               found.start_method)  # fmt: skip
    assert all(option.why for option in options)
    if found.refused:
        assert knob.value == 0


@given(datasets, machines)
def test_what_is_recommended_fits(dataset: DatasetFacts, machine: MachineFacts) -> None:
    found = recommend(dataset, machine)
    workers = found.num_workers.value
    if isinstance(workers, int) and workers and found.shm is not None and machine.shm is not None:
        assert found.shm <= machine.shm / 2
    if not workers and found.num_workers.basis in ("known", "measured"):
        assert found.prefetch_factor.value is None
        assert found.persistent_workers.value is False


@given(datasets, machines, st.floats(1, 8))
def test_more_of_a_machine_never_means_fewer_workers(dataset: DatasetFacts, machine: MachineFacts, more: float) -> None:
    larger = replace(
        machine,
        cores=machine.cores * more if machine.cores is not None else None,
        memory=int(machine.memory * more) if machine.memory is not None else None,
        shm=int(machine.shm * more) if machine.shm is not None else None,
    )
    less, greater = (recommend(dataset, one).num_workers for one in (machine, larger))
    if isinstance(less.value, int) and isinstance(greater.value, int):
        assert less.value <= greater.value


@given(datasets, machines, st.floats(1, 100))
def test_a_slower_step_never_needs_more_workers(dataset: DatasetFacts, machine: MachineFacts, slower: float) -> None:
    if dataset.step_s is None:
        return
    fast, slow = (
        recommend(one, machine).num_workers for one in (dataset, replace(dataset, step_s=dataset.step_s * slower))
    )
    if isinstance(fast.value, int) and isinstance(slow.value, int):
        assert slow.value <= fast.value
