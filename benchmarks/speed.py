"""What a run costs beside other tools: ``python benchmarks/speed.py --work FOLDER``.

Trees are source archives of PyPI (``corpora.toml``) and folders that are named.  Each command runs in turn with all
others (A B C, A B C, ...), in a process of its own; what counts is CPU time, since wall time says more of what else the
machine does.  Peers live in virtual environments that this script makes in FOLDER.  ``--scaling`` copies one tree
several times, under other names; ``--phases`` says where the time of one run goes.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import time
import venv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tomli

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

# Requirements that clash with each other or with ours, and how each tool is run on the current folder.
PEERS: dict[str, tuple[list[str], list[str]]] = {
    "ruff": (["ruff==0.17.6"], ["ruff", "check", "--no-cache", "--isolated", "--silent", "."]),
    "flake8": (["flake8==7.5.0"], ["flake8", "--isolated", "-j1", "."]),
    "torchfix": (["torchfix==0.7.0"], ["torchfix", "--jobs", "1", "--select", "ALL", "."]),
    "torch-preflight": (["torch-preflight==0.5.0"], ["torch-preflight", "check", "."]),
}
SLOW = {"torchfix", "torch-preflight", "flake8"}  # minutes on a large tree: there they run once, or not at all
LARGE = 3_000_000  # bytes


class Cost(NamedTuple):
    """Of one process and its children: seconds of CPU, seconds, MiB at most."""

    cpu: float
    wall: float
    memory: float


@dataclass(frozen=True)
class Command:
    name: str
    words: list[str]
    environment: dict[str, str]


def cost(command: Command, tree: Path, limit_s: float) -> Cost | None:
    """What a command takes; None where it takes longer than the limit."""
    start = time.perf_counter()
    devnull = subprocess.DEVNULL
    process = subprocess.Popen(command.words, cwd=tree, env=command.environment, stdout=devnull, stderr=devnull)
    while True:
        done, _, usage = os.wait4(process.pid, os.WNOHANG)
        if done:
            process.returncode = 0
            break
        if time.perf_counter() - start > limit_s:
            process.kill()
            process.wait()
            return None
        time.sleep(0.002)
    return Cost(usage.ru_utime + usage.ru_stime, time.perf_counter() - start, usage.ru_maxrss / 1024)


# -- trees


def size_of(tree: Path) -> tuple[int, int]:
    """Files and bytes of Python."""
    sizes = [file.stat().st_size for file in tree.rglob("*.py") if file.is_file()]
    return len(sizes), sum(sizes)


def archived(work: Path) -> Iterable[Path]:
    for archive in tomli.loads((HERE / "corpora.toml").read_text(encoding="utf-8"))["archive"]:
        yield unpacked(archive, work / "trees")


def unpacked(archive: dict[str, Any], place: Path) -> Path:
    """The folder of an archive's sources, fetched from the index that pip is set up for."""
    folder = place / f"{archive['name']}-{archive['version']}"
    if not folder.exists():
        fetched = place / "fetched" / archive["name"]
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
        command += ["-d", str(fetched), f"{archive['name']}=={archive['version']}"]
        # Some setup.py want torch, which is here; others want build tools, which are not.
        if subprocess.run([*command, "--no-build-isolation"], check=False, capture_output=True).returncode:
            subprocess.run(command, check=True)
        (file,) = fetched.glob("*.tar.gz")
        if hashlib.sha256(file.read_bytes()).hexdigest() != archive["sha256"]:
            raise SystemExit(f"{file}: another archive than corpora.toml names")
        with tarfile.open(file) as tar:
            tar.extractall(fetched / "sources", filter="data")
        (sources,) = (fetched / "sources").iterdir()
        sources.rename(folder)
    return folder


def copied(tree: Path, times: int, place: Path) -> Path:
    """A folder with several copies of a tree: other names for its packages, so that none is another's module."""
    folder = place / f"{tree.name}-{times}"
    if not folder.exists():
        for number in range(times):
            shutil.copytree(tree, folder / f"copy_{number}", ignore=shutil.ignore_patterns(".git", ".dlcheck_cache"))
            for package in list((folder / f"copy_{number}").iterdir()):
                if package.is_dir():
                    package.rename(package.with_name(f"{package.name}_{number}"))
        (folder / "pyproject.toml").write_text("[project]\nname = 'copies'\nversion = '1'\n", encoding="utf-8")
    return folder


# -- commands


def own_commands() -> list[Command]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    python, check = sys.executable, ["-m", "dlcheck", "check", "-q", "--output-format", "concise"]
    return [
        Command("F0: python -c pass", [python, "-c", "pass"], environment),
        Command("F1: import libcst", [python, "-c", "import libcst"], environment),
        Command("dlcheck, cold", [python, *check, "--no-cache", "."], environment),
        Command("dlcheck, warm", [python, *check, "."], environment),
    ]


def peer_commands(work: Path) -> list[Command]:
    return [Command(name, [str(scripts_of(name, work) / words[0]), *words[1:]], dict(os.environ))
            for name, (_, words) in PEERS.items()]  # fmt: skip


def scripts_of(name: str, work: Path) -> Path:
    """The folder of the programs of a peer's own virtual environment, which is made if it is not there."""
    folder = work / "peers" / name
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([str(scripts / "python"), "-m", "pip", "install", "-q", *PEERS[name][0]], check=True)
        (folder / "ready").touch()
    return scripts


# -- tables


def in_turn(commands: Sequence[Command], tree: Path, rounds: int, limit_s: float) -> dict[str, list[Cost]]:
    found: dict[str, list[Cost]] = {}
    large = size_of(tree)[1] > LARGE
    for number in range(rounds):
        for command in commands:
            gave_up = number and command.name not in found
            if gave_up or number and large and command.name in SLOW:
                continue
            one = cost(command, tree, limit_s)
            if one is not None:
                found.setdefault(command.name, []).append(one)
    return found


def median(costs: Iterable[Cost]) -> float:
    return statistics.median(one.cpu for one in costs)


def table(tree: Path, costs: dict[str, list[Cost]]) -> str:
    files, size = size_of(tree)
    lines = [
        f"**{tree.name}**: {files} files, {size / 1e6:.2f} MB",
        "",
        "| command | CPU s | least, most | wall s | x ruff | x F1 | MiB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, runs in costs.items():
        cpu = [run.cpu for run in runs]
        ruff = f"{median(runs) / median(costs['ruff']):.2f}" if "ruff" in costs else ""
        lines.append(
            f"| {name} | {median(runs):.3f} | {min(cpu):.3f}, {max(cpu):.3f} "
            f"| {statistics.median(run.wall for run in runs):.2f} | {ruff} "
            f"| {median(runs) / median(costs['F1: import libcst']):.2f} | {max(run.memory for run in runs):.0f} |"
        )
    return "\n".join(lines) + "\n"


def scaling(tree: Path, work: Path, rounds: int, limit_s: float) -> str:
    cold, warm = own_commands()[2:]
    lines = ["| copies | files | cold CPU s | per copy | MiB | warm CPU s |", "| ---: " * 6 + "|"]
    for times in (1, 2, 4, 8, 16):
        folder = copied(tree, times, work / "copies")
        found = in_turn([cold, warm], folder, rounds + 1, limit_s)
        if cold.name in found and warm.name in found:
            first, again = median(found[cold.name]), median(found[warm.name][1:])
            memory = max(run.memory for run in found[cold.name])
            lines.append(
                f"| {times} | {size_of(folder)[0]} | {first:.2f} | {first / times:.2f} | {memory:.0f} | {again:.2f} |"
            )
    return "\n".join(lines) + "\n"


# -- phases

PHASES = (
    ("finding files", "dlcheck.engine:_Run", "_named"),
    ("CPython's parser, and what libcst must not see", "dlcheck.facts.gate", "refuse_hazards"),
    ("whether what nothing is said of is Python", "dlcheck.facts.gate", "refuse_unless_python"),
    ("its tree to forms", "dlcheck.facts.quick", "forms_of"),
    ("libcst, for places", "dlcheck.facts", "extract"),
    ("linking modules", "dlcheck.model.project:Project", "_add"),
    *(
        ("searching all files for words", "dlcheck.files.workspace:Workspace", name)
        for name in ("mentions", "naming", "reaching", "declaring", "gives_meaning")
    ),
)


class Clock:
    """CPU seconds by phase; of a phase inside another one, only the inner one's count."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._inner: list[float] = []

    def timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            began = time.process_time()
            self._inner.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                took = time.process_time() - began
                self.spent[phase] = self.spent.get(phase, 0.0) + took - self._inner.pop()
                if self._inner:
                    self._inner[-1] += took

        return call


def phases(tree: Path) -> str:
    """Where the CPU time of a cold run goes, in this process."""
    clock = Clock()
    load = clock.timed("imports", importlib.import_module)
    engine, config = load("dlcheck.engine"), load("dlcheck.config")
    load("dlcheck.checks")
    for phase, where, name in PHASES:
        module, _, cls = where.partition(":")
        owner = getattr(load(module), cls) if cls else load(module)
        setattr(owner, name, clock.timed(phase, getattr(owner, name)))
    gc.disable()
    os.chdir(tree)
    clock.timed("the rest: evaluating, checks", engine.check)(["."], config.load(os.getcwd(), {}, isolated=True))
    total = sum(clock.spent.values())
    rows = sorted(clock.spent.items(), key=lambda row: -row[1])
    return "\n".join(f"| {phase} | {seconds:.2f} | {100 * seconds / total:.0f} % |" for phase, seconds in rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="a folder for archives, environments and copies")
    parser.add_argument("--tree", type=Path, action="append", default=[], help="a checkout, besides the archives")
    parser.add_argument("--only", help="trees whose names hold this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one command")
    parser.add_argument("--peers", default=",".join(PEERS), help="names with commas between; empty for none")
    parser.add_argument("--scaling", action="store_true", help="copies of the first tree instead")
    parser.add_argument("--phases", action="store_true", help="where the time goes instead, in the first tree")
    args = parser.parse_args()
    trees = [tree.resolve() for tree in (*args.tree, *archived(args.work)) if (args.only or "") in tree.name]
    if args.phases:
        sys.path.insert(0, str(ROOT))
        print(phases(trees[0]))
        return
    if args.scaling:
        print(scaling(trees[0], args.work, args.rounds, args.limit))
        return
    wanted = args.peers.split(",")
    commands = own_commands() + [command for command in peer_commands(args.work) if command.name in wanted]
    for tree in trees:
        cost(own_commands()[3], tree, args.limit)  # so that warm is warm from the first round on
        print(table(tree, in_turn(commands, tree, args.rounds, args.limit)), flush=True)


if __name__ == "__main__":
    main()
