"""What is known of a device: the host's own backend, and what drivers and the kernel tell of a GPU."""

from __future__ import annotations

import ast
import inspect
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from dlcheck_worker import device, nvidia
from dlcheck_worker.device import CpuBackend, backend_of

SOURCE = Path(device.__file__)


# -- Backends ----------------------------------------------------------------------------------------------------------


def test_host_copies_really() -> None:
    batch = torch.arange(8.0)
    copy = CpuBackend().h2d(batch, non_blocking=True)
    assert torch.equal(copy, batch)
    assert copy.data_ptr() != batch.data_ptr()


def test_host_events_tell_milliseconds() -> None:
    begin, end = CpuBackend().event(), CpuBackend().event()
    begin.record()
    time.sleep(0.02)
    end.record()
    assert 20 <= begin.elapsed_time(end) < 20_000


def test_host_claims_nothing_of_a_gpu() -> None:
    backend = backend_of("cpu")
    assert (backend.async_copies, backend.can_pin) == (False, False)
    assert json.loads(json.dumps(backend.facts()))["device"] == "cpu"
    assert backend.state() is None


def test_unknown_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="no device `tpu`"):
        backend_of("tpu")


def test_cuda_has_all_calls_of_the_host() -> None:
    calls = {name for name in vars(CpuBackend) if not name.startswith("_")}
    facts = {"name", "async_copies", "can_pin"}
    assert calls - facts <= set(vars(device.CudaBackend))


def test_what_is_called_of_torch_exists() -> None:
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    read = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    used = {node.attr for node in read if ast.unparse(node.value) in ("torch.cuda", "CUDA")}
    assert {"Event", "Stream", "current_stream", "memory_stats", "synchronize"} <= used
    assert [name for name in sorted(used) if not hasattr(torch.cuda, name)] == []
    assert "enable_timing" in inspect.signature(torch.cuda.Event.__new__).parameters
    assert "num_device_alloc" in (torch.cuda.memory_stats.__doc__ or "")
    assert "num_device_free" in (torch.cuda.memory_stats.__doc__ or "")


def test_properties_that_are_read_exist() -> None:
    # `total_mem`, which a well-known script reads, is none of them.
    stub = ast.parse((Path(torch.__file__).parent / "_C" / "__init__.pyi").read_text(encoding="utf-8"))
    [properties] = [n for n in stub.body if isinstance(n, ast.ClassDef) and n.name == "_CudaDeviceProperties"]
    known = {n.target.id for n in properties.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    read = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "properties"
    }
    assert "total_memory" in read
    assert read <= known


# -- Links -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("speed", "width", "gbs"), [(32.0, 16, 63.0), (16.0, 16, 31.5), (8.0, 16, 15.75), (5.0, 16, 8.0), (64.0, 16, 121.0)]
)
def test_limits_of_links(speed: float, width: int, gbs: float) -> None:
    assert nvidia.limit_of(speed, width) == pytest.approx(gbs, rel=0.001)


def test_unknown_links_have_no_limit() -> None:
    assert nvidia.limit_of(3.0, 16) is None
    assert nvidia.limit_of(32.0, 0) is None


def kernel_files(root: Path, address: str, **lines: str) -> None:
    folder = root / address
    folder.mkdir(parents=True)
    for name, line in lines.items():
        (folder / name).write_text(line + "\n")


def test_link_of_a_card(tmp_path: Path) -> None:
    # As an idle card shows itself: it has slowed its link down.
    kernel_files(
        tmp_path,
        "0000:3b:00.0",
        max_link_speed="32.0 GT/s PCIe",
        max_link_width="16",
        current_link_speed="2.5 GT/s PCIe",
        current_link_width="16",
    )
    link = nvidia.link_of("NVIDIA H200", "0000:3b:00.0", str(tmp_path))
    assert link is not None
    assert link["limit_gbs"] == pytest.approx(63.0, rel=0.001)
    assert link["now"] == ["2.5 GT/s PCIe", "16"]


def test_link_that_the_kernel_does_not_know(tmp_path: Path) -> None:
    kernel_files(tmp_path, "0000:3b:00.0", max_link_speed="Unknown", max_link_width="0")
    assert nvidia.link_of("NVIDIA H200", "0000:3b:00.0", str(tmp_path)) is None
    assert nvidia.link_of("NVIDIA H200", "0000:5e:00.0", str(tmp_path)) is None
    assert nvidia.link_of("NVIDIA H200", None) is None


def test_link_between_chips_is_not_the_one_of_pcie(tmp_path: Path) -> None:
    kernel_files(tmp_path, "0009:01:00.0", max_link_speed="32.0 GT/s PCIe", max_link_width="1")
    link = nvidia.link_of("NVIDIA GH200 480GB", "0009:01:00.0", str(tmp_path))
    assert link is not None
    assert link["limit_gbs"] == 450.0


def test_addresses() -> None:
    assert nvidia.normal("00000000:3B:00.0") == "0000:3b:00.0"
    assert nvidia.address_of(SimpleNamespace(pci_bus_id=0x3B, pci_device_id=0, pci_domain_id=0), 0) == "0000:3b:00.0"


def test_reasons() -> None:
    assert nvidia.reasons_of("0x0000000000000044") == ["power cap", "hardware thermal slowdown"]
    assert nvidia.reasons_of("0x0") == []
    assert nvidia.reasons_of("[N/A]") is None


# -- The driver's program ----------------------------------------------------------------------------------------------

DRIVER = """#!{python}
import sys
query, *others = sys.argv[1:]
if "clocks_throttle_reasons" in query:
    sys.exit("Field is not a valid field to query.")
answers = {{
    "--query-gpu=uuid,pci.bus_id": "GPU-11-aa, 00000000:3B:00.0\\nGPU-22-bb, 00000000:5E:00.0",
    "--query-compute-apps=pid": "77\\n{pid}",
    "--query-gpu=clocks_event_reasons.active": "0x0000000000000005",
}}
fields = query.partition("=")[2].split(",")
print(answers.get(query) or ", ".join("[N/A]" if field == "power.draw" else "1980" for field in fields))
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An nvidia-smi that knows two cards, and reasons by their later name only."""
    if os.name != "posix":
        pytest.skip("the program is a script")
    program = tmp_path / "nvidia-smi"
    program.write_text(DRIVER.format(python=sys.executable, pid=os.getpid()))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nvidia, "SLOW", 60.0)


@pytest.mark.usefixtures("driver")
def test_state_of_a_card() -> None:
    state = nvidia.Watch("0000:3b:00.0").state()
    assert state is not None
    assert state["sm_mhz"] == 1980.0
    assert state["watts"] == "[N/A]"
    assert state["reasons"] == ["idle", "power cap"]
    assert state["slowed"] == ["power cap"]
    assert state["others"] == [77]


@pytest.mark.usefixtures("driver")
def test_address_by_the_driver() -> None:
    assert nvidia.address_of(SimpleNamespace(uuid="22-bb"), 0) == "0000:5e:00.0"
    assert nvidia.address_of(SimpleNamespace(uuid="33-cc"), 0) is None


@pytest.mark.usefixtures("driver")
def test_a_slow_driver_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "SLOW", 0.0)
    watch = nvidia.Watch("0000:3b:00.0")
    assert watch.state() is not None
    assert watch.state() is None


def test_without_a_driver_nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    watch = nvidia.Watch("0000:3b:00.0")
    assert (watch.state(), watch.card(), watch.link()) == (None, {}, None)
