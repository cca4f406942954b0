"""The prepared run for a GPU: its plan, what it makes of what the rounds say, and a rehearsal from end to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import summary
from cells import MIB, SHARES, Cell, Pair, cells
from dlcheck_worker import gpu
from dlcheck_worker.device import CpuBackend
from dlcheck_worker.rig import Rig
from summary import Seen, acceptance, decided, noises, records

from dlcheck.measure import stepmodel
from dlcheck.measure.serial import from_json, to_json

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "benchmarks" / "gpu" / "run.sh"
TERMS = {"host": 0.0, "launch": 0.0001, "compute": 0.001, "copy": 0.001, "pageable": 0.006, "pin": 0.005}
SYNC_TERMS = {"host": 0.002, "launch": 0.001, "compute": 0.001, "kernel": 1e-5, "sync": 1e-5}
FACTS = {"async_copies": True, "device": "cuda", "name": "H200", "link": {"limit_gbs": 63.0}, "torch": "2.13.0"}
PLAN = list(cells(False, 64 << 30))


# -- The plan ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quick", [True, False])
def test_every_cell_is_an_experiment_with_its_arms(quick: bool) -> None:
    plan = list(cells(quick, 64 << 30))
    assert {cell.group for cell in plan} == set(SHARES) == {f"C{number}" for number in range(1, 12)}
    assert len({cell.name for cell in plan}) == len(plan)
    for cell in plan:
        assert cell.experiment in gpu.EXPERIMENTS
        named = {name for pair in (*cell.pairs, *([cell.same] if cell.same else [])) for name in (pair.a, pair.b)}
        assert named <= set(cell.arms)
        if cell.same:
            assert cell.arms[cell.same.a] == cell.arms[cell.same.b]
        arm_type: Any = gpu.EXPERIMENTS[cell.experiment].arm_type
        for config in cell.arms.values():
            arm_type(**config)


def test_every_kind_of_block_has_its_noise_measured() -> None:
    assert {cell.group for cell in PLAN if cell.same} == set(SHARES) - {"C1"}


def test_sizes_are_those_of_a_small_machine() -> None:
    small = [cell for cell in cells(False, 2 << 30) if cell.group in ("C1", "C2")]
    assert max(cell.config["bytes"] for cell in small) <= 64 * MIB
    assert all(cell.config["bytes"] * cell.config.get("buffers", 1) <= 128 * MIB for cell in small)
    assert max(cell.config["bytes"] for cell in PLAN if cell.group == "C1") == 256 * MIB


# C3 starts workers: the rehearsal does.
@pytest.mark.parametrize("cell", [c for c in cells(True, 8 << 30) if c.group != "C3"], ids=lambda cell: cell.name)
def test_quick_cells_can_be_built(cell: Cell, rig: Rig) -> None:
    experiment = gpu.experiment(cell.experiment, {**cell.config, "arms": cell.arms}, rig.backend, rig)
    assert experiment.block(next(iter(cell.arms)), steps=2)["ok"]


@pytest.fixture(scope="module")
def rig() -> Rig:
    return Rig(CpuBackend())


# -- What is made of the rounds ----------------------------------------------------------------------------------------


def told(plan: list[Cell], rounds: int = 4, device: dict[str, Any] = FACTS) -> Seen:
    """What a GPU would say that does exactly what the model says, with half a percent of noise."""
    seen = Seen(plan)
    for number in range(rounds):
        seen.add(number, {"ready": number, "facts": device, "setup_s": 5.0})
        for cell in plan:
            terms = {"transfer": TERMS, "sync": SYNC_TERMS}.get(cell.experiment)
            missing = [] if device["async_copies"] else ["a GPU"]
            facts = {"missing": missing, "clocks_settled": True, **({"terms": terms} if terms else {})}
            seen.add(number, {"cell": cell.name, "facts": facts})
            for position, arm in enumerate(cell.arms):
                noise = 1 + 0.005 * ((number + position) % 2)
                block = {"t": time_of(cell, arm) * noise, "ok": True, "gbs": 55.0 if "pinned" in arm else 12.0}
                seen.add(number, {"cell": cell.name, "arm": arm, "position": position, "block": block})
            if cell.control is not None:
                seen.add(number, {"cell": cell.name, "control": {"ok": number > 0, "t": 0.001}})
    return seen


def time_of(cell: Cell, arm: str) -> float:
    config = cell.arms[arm]
    if cell.group == "C2":
        return stepmodel.predicted(stepmodel.Terms.of(TERMS), stepmodel.Transfer.of(config))
    if cell.experiment == "sync":
        return stepmodel.synced(stepmodel.SyncTerms.of(SYNC_TERMS), config["every"])
    return float(cell.config.get("bytes", MIB)) / (55e9 if "pinned" in arm else 12e9)


def status(seen: Seen, part: str, rounds: int = 4) -> str:
    [found] = [one for one in acceptance(seen, rounds) if part in one.name]
    return found.status


PARTS = ("checksums", "negative control", "of the link", "the model", "A/A of C2", "better than", "all rounds")


def test_a_run_that_counts() -> None:
    seen = told(PLAN)
    assert {part: status(seen, part) for part in PARTS} == dict.fromkeys(PARTS, "pass")


def spoil_checksum(seen: Seen) -> None:
    seen.blocks[7]["ok"] = False


def spoil_control(seen: Seen) -> None:
    for one in seen.controls:
        one["ok"] = True


def spoil_link(seen: Seen) -> None:
    for block in seen.blocks:
        block["gbs"] = min(block["gbs"], 50.0)  # 79 % of 63


def spoil_model(seen: Seen) -> None:
    # A fourth of the arms is a fifth slower than the model says.
    for block in seen.blocks:
        if block["cell"].startswith("C2") and block["arm"] in ("pageable", "pin_and_copy"):
            block["t"] *= 1.25


def spoil_noise(seen: Seen) -> None:
    for block in seen.blocks:
        if block["cell"].startswith("C2") and block["arm"] == "again":
            block["t"] *= 1 + 0.05 * (block["round"] % 2)


def spoil_limit(seen: Seen) -> None:
    for block in seen.blocks:
        if block["cell"] == "C1 64 MiB":
            block["t"] = 64 * MIB / 70e9


def spoil_rounds(seen: Seen) -> None:
    seen.blocks = [block for block in seen.blocks if not (block["cell"].startswith("C8") and block["round"] == 3)]


SPOILERS = (spoil_checksum, spoil_control, spoil_link, spoil_model, spoil_noise, spoil_limit, spoil_rounds)


@pytest.mark.parametrize(("part", "spoil"), list(zip(PARTS, SPOILERS, strict=True)), ids=PARTS)
def test_each_condition_can_fail(part: str, spoil: Any) -> None:
    seen = told(PLAN)
    spoil(seen)
    found = {one: status(seen, one) for one in PARTS}
    assert found.pop(part) == "fail"
    assert set(found.values()) == {"pass"}


def test_unknown_link_is_not_measured() -> None:
    assert status(told(PLAN, device={**FACTS, "link": None}), "of the link") == "not-measured"


def test_a_device_that_cannot_show_it_decides_nothing() -> None:
    seen = told(PLAN, device={"async_copies": False, "device": "cpu"})
    for part in ("negative control", "of the link", "the model", "A/A of C2", "better than"):
        assert status(seen, part) == "not-measurable-here"
    assert {record.verdict for record in records(seen, 1.0, "run.sh")} == {"not-measurable-here"}
    assert "A rehearsal without a GPU" in summary.markdown(seen, 4, 1.0)


C2 = [cell for cell in PLAN if cell.group == "C2"]


def verdict_of(seen: Seen, a: str, b: str) -> str:
    cell = next(cell for cell in C2 if cell.same)
    return decided(seen, cell, Pair(a, b), noises(seen).get("C2"))[0]


def test_verdicts_of_a_quiet_run() -> None:
    seen = told(C2)
    assert verdict_of(seen, "pageable", "pinned") == "confirmed"
    assert verdict_of(seen, "pageable", "pageable_nb") == "refuted-no-effect"
    assert verdict_of(seen, "pinned_nb", "pin_and_copy") == "refuted-harmful"


def test_three_rounds_decide_nothing() -> None:
    assert verdict_of(told(C2, rounds=3), "pageable", "pinned") == "inconclusive"


def test_wrong_bytes_void_a_verdict() -> None:
    seen = told(C2)
    for block in seen.blocks:
        block["ok"] = block["arm"] != "pinned"
    assert verdict_of(seen, "pageable", "pinned") == "inconclusive"


def test_noise_widens_the_margin() -> None:
    seen = told(C2)
    cell = next(cell for cell in C2 if cell.same)
    for block in seen.blocks:
        if block["arm"] == "pageable_nb":
            block["t"] *= 0.9
    assert verdict_of(seen, "pageable", "pageable_nb") == "confirmed"
    for block in seen.blocks:
        if block["cell"] == cell.name and block["arm"] == "again":
            block["t"] *= (0.92, 1.08)[block["round"] % 2]
    assert verdict_of(seen, "pageable", "pageable_nb") == "inconclusive"


def test_states_of_the_card_are_guards() -> None:
    seen = told(C2)
    seen.add(0, {"group": "C2", "before": {"slowed": ["power cap"], "others": [77]}})
    seen.add(0, {"done": "C2", "after": {"slowed": [], "others": []}, "seconds": 3.0})
    _, _, guards = decided(seen, C2[0], C2[0].pairs[0], None)
    found = {guard.name: (guard.status, guard.detail) for guard in guards}
    assert found["clocks held down"] == ("warn", "power cap")
    assert found["other processes"] == ("warn", "77")


def test_records_survive_being_written() -> None:
    made = records(told(PLAN), 300.0, "benchmarks/gpu/run.sh")
    assert {record.code for record in made} >= {"DLC101", "DLC102", "DLC103", "DLC104", "DLC111", "DLC501", "DLC502"}
    for record in made:
        written = json.loads(json.dumps(to_json(record)))
        assert to_json(from_json(written)) == written
        assert (ROOT / "rules" / f"{record.code}-{record.rule}.md").is_file()


# -- From end to end ---------------------------------------------------------------------------------------------------


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("OUT", "PYTHONPATH")}
    command = [str(RUN), *words]
    environment = {**kept, "PYTHON": sys.executable, **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="a shell script")
def test_rehearsal(tmp_path: Path) -> None:
    done = run(str(tmp_path), "--device", "cpu", "--quick", "--rounds", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    for group in SHARES:
        content = json.loads((tmp_path / f"{group}.json").read_text())
        assert {block["round"] for block in content["blocks"]} == {0, 1}
        assert all(block["ok"] for block in content["blocks"])
    found = [from_json(one) for one in json.loads((tmp_path / "records.json").read_text())]
    assert found
    assert {record.verdict for record in found} == {"not-measurable-here"}
    assert {record.machine["device"] for record in found} == {"cpu"}
    conditions = {one["name"]: one["status"] for one in json.loads((tmp_path / "acceptance.json").read_text())}
    assert conditions["all checksums agree"] == conditions["all cells ran in all rounds"] == "pass"
    assert set(conditions.values()) == {"pass", "not-measurable-here"}
    assert "A rehearsal without a GPU" in (tmp_path / "summary.md").read_text()


@pytest.mark.skipif(os.name != "posix", reason="a shell script")
def test_an_interpreter_without_torch_is_refused() -> None:
    done = run("--device", "cpu", "--quick", PYTHON="/bin/false")
    assert done.returncode == 2
    assert "with torch" in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="a shell script")
@pytest.mark.slow
def test_a_round_that_hangs_is_ended(tmp_path: Path) -> None:
    # No time at all: the process has not even imported torch when its time is up.
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import run, summary, argparse, time\n"
        "run.GRACE = 0.3\n"
        "options = argparse.Namespace(quick=True, device='cpu', memory=1 << 33, out=run.Path(sys.argv[2]))\n"
        "start = time.monotonic(); run.play(0, 0.1, options, summary.Seen([])); print(time.monotonic() - start)\n"
    )
    command = [sys.executable, "-c", script, str(RUN.parent), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "round 1 ended with status -9" in done.stdout
