"""GPUs, as the driver's program prints them and as the kernel lists them."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from recorded import gpu, system

from dlcheck import measure
from dlcheck.advise.devices import GENERATIONS, LANE_GBS, Gpu, gpus_of, parsed
from dlcheck.system import System

WORKER = Path(measure.__file__).parent / "worker"


def test_what_the_driver_prints() -> None:
    text = "NVIDIA H200, 00000000:1B:00.0, 143771, 5, 16\nTesla T4, 00000000:00:1E.0, 15360, [N/A], [N/A]\n\nnonsense\n"
    assert parsed(text) == [
        Gpu("NVIDIA H200", 143771 << 20, "00000000:1B:00.0", 5, 16, "nvidia-smi"),
        Gpu("Tesla T4", 15360 << 20, "00000000:00:1E.0", None, None, "nvidia-smi"),
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="a program here is a script with a first line")
def test_the_driver_is_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\ncase $1 in --query-gpu=name,*) echo 'NVIDIA A100, 0000:01:00.0, 40960, 4, 16';; esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    found = gpus_of(System())
    assert found == [Gpu("NVIDIA A100", 40960 << 20, "0000:01:00.0", 4, 16, "nvidia-smi")]
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'; exit 9\n")
    assert "NVIDIA A100" not in str(gpus_of(System()))


def test_what_the_kernel_lists(tmp_path: Path) -> None:
    tree = {
        **gpu("0000:3b:00.0", speed="16.0", width=8),
        **gpu("0000:5e:00.0", vendor="0x1002", kind="0x038000", speed="32.0"),
        "sys/bus/pci/devices/0000:5e:00.0/mem_info_vram_total": str(64 << 30),
        **gpu("0000:00:02.0", vendor="0x8086", kind="0x030000"),  # Intel's own
        **gpu("0000:3b:00.1", kind="0x040300"),  # the sound of a GPU
        "proc/driver/nvidia/gpus/0000:3b:00.0/information": "Model: \t\t NVIDIA L4\nIRQ: 12\n",
    }
    found = gpus_of(system(tmp_path, tree))
    assert found is not None
    assert [(one.name, one.memory, one.generation, one.width) for one in found] == [
        ("NVIDIA L4", None, 4, 8),
        ("AMD GPU", 64 << 30, 5, 16),
    ]
    assert found[0].link_gbs == pytest.approx(15.75, rel=0.01)


def test_none_and_unknown_are_two_things(tmp_path: Path) -> None:
    assert gpus_of(system(tmp_path / "a", gpu("0000:00:02.0", vendor="0x8086", kind="0x030000"))) == []
    assert gpus_of(system(tmp_path / "b", {})) is None


def test_a_container_that_hides_the_bus_shows_the_driver(tmp_path: Path) -> None:
    tree = {
        **gpu("0000:00:02.0", vendor="0x8086"),
        "proc/driver/nvidia/gpus/0000:1b:00.0/information": "Model: NVIDIA H100\n",
    }
    found = gpus_of(system(tmp_path, tree))
    assert [one.name for one in found or ()] == ["NVIDIA H100"]


@pytest.mark.parametrize("speed", ["2.5", "5.0", "8.0", "16.0", "32.0", "64.0"])
def test_a_lane_is_as_fast_as_measuring_says(speed: str) -> None:
    spec = importlib.util.spec_from_file_location("nvidia", WORKER / "dlcheck_worker" / "nvidia.py")
    assert spec is not None
    assert spec.loader is not None
    nvidia = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nvidia)
    assert LANE_GBS[GENERATIONS[speed]] * 16 == pytest.approx(nvidia.limit_of(float(speed), 16), rel=0.001)
