"""The machine that a recommendation is for: this one, or another whose facts lie in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlcheck import files
from dlcheck.advise.env import SCHEMA, Fact, Facts
from dlcheck.advise.known import MachineFacts
from dlcheck.advise.units import count, size

FORKSERVER_SINCE = (3, 14)
MAX_BYTES = 1 << 20


class MachineError(Exception):
    """A file that holds no facts of a machine; one line for people."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """What the user says instead of what the machine does: ranks, and the Python that will run the program."""

    ranks: int | None = None
    python: tuple[int, int] | None = None


def machine_of(found: Facts, assumed: Assumed) -> MachineFacts:
    """What a recommendation needs of the facts."""
    values = {name: fact.value for name, fact in found.items()}
    ranks = assumed.ranks or values.get("ranks") or 1
    usable = values.get("usable_cores")
    cores = values.get("cores_per_rank")
    if assumed.ranks and usable is not None:
        cores = usable / assumed.ranks
    gpus, storage = values.get("gpus"), values.get("storage")
    open_files = values.get("open_files")
    return MachineFacts(
        cores=cores,
        ranks=ranks,
        memory=values.get("memory_available"),
        shm=values.get("shm_free"),
        shm_total=values.get("shm_total"),
        open_files=open_files if isinstance(open_files, int) else None,
        gpus=len(gpus) if gpus is not None else None,
        start_method=_start_method(values.get("start_method"), assumed.python),
        storage=storage["kind"] if storage else "",
        container=str(values.get("container") or ""),
    )


def _start_method(known: str | None, python: tuple[int, int] | None) -> str:
    """That of the interpreter, or of the Python that the program is for."""
    if python is None or known == "spawn":
        return known or "fork"
    return "forkserver" if python >= FORKSERVER_SINCE else "fork"


def in_short(found: Facts, machine: MachineFacts) -> str:
    """One line: what a recommendation rests on."""
    values = {name: fact.value for name, fact in found.items()}
    cores = count(machine.cores, "usable core") if machine.cores is not None else "unknown cores"
    parts = [cores + (f" for each of {machine.ranks} ranks" if machine.ranks > 1 else "")]
    parts.append(f"{size(machine.memory)} of memory free" if machine.memory is not None else "unknown memory")
    if machine.shm is not None:
        parts.append(f"{size(machine.shm)} of /dev/shm")
    gpus = values.get("gpus")
    names = [str(gpu["name"]) for gpu in gpus or ()]
    shown = ", ".join(
        f"{names.count(name)} x {name}" if names.count(name) > 1 else name for name in dict.fromkeys(names)
    )
    parts.append(shown or ("no GPU" if gpus is not None else "GPUs unknown"))
    storage = values.get("storage")
    if storage:
        parts.append(f"{storage['filesystem']} ({storage['kind']})")
    python = f"Python {values['python']}, " if values.get("python") else ""
    return ", ".join(parts) + f"; {python}workers start by {machine.start_method}"


def read(file: str) -> dict[str, Fact]:
    """The facts that ``dlcheck env --output-format json`` printed on another machine; raises MachineError."""
    try:
        data = files.read(file)
    except files.UnusableError as error:
        raise MachineError(f"{files.shown(file)}: {error.message}") from None
    try:
        document = json.loads(data) if len(data) <= MAX_BYTES else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        told = "it does not hold what `dlcheck env --output-format json` prints"
        raise MachineError(f"{files.shown(file)}: {told}")
    facts = document.get("facts")
    if not isinstance(facts, dict):
        raise MachineError(f"{files.shown(file)}: `facts` is no object")
    return {name: _fact(file, name, told) for name, told in facts.items() if name in _KINDS}


_NUMBER = (int, float)
# What the value of each fact that a recommendation reads can be, besides null.
_KINDS: Mapping[str, tuple[type, ...]] = {
    "visible_cpus": (int,), "affinity": (int,), "physical_cores": (int,), "cpuset": (int,), "cpu_quota": _NUMBER,
    "usable_cores": _NUMBER, "ranks": (int,), "cores_per_rank": _NUMBER, "memory_total": (int,), "memory_limit": (int,),
    "memory_available": (int,), "shm_total": (int,), "shm_free": (int,), "open_files": (int, str),
    "locked_memory": (int, str), "storage": (dict,), "container": (str, bool), "omp_threads": (int,),
    "mkl_threads": (int,), "gpus": (list,), "python": (str,), "torch": (str,), "start_method": (str,),
}  # fmt: skip


def _fact(file: str, name: str, told: Any) -> Fact:
    value = told.get("value") if isinstance(told, dict) else None
    wrong = value is not None and (
        not isinstance(value, _KINDS[name]) or isinstance(value, bool) and name != "container"
    )
    if not isinstance(told, dict) or wrong or not _is_complete(name, value):
        raise MachineError(f"{files.shown(file)}: `facts.{name}` is not what `dlcheck env` prints there")
    return Fact(value, str(told.get("source", "")), str(told.get("follows", "")))


def _is_complete(name: str, value: Any) -> bool:
    if value is None:
        return True
    if name == "storage":
        return all(isinstance(value.get(key), str) for key in ("kind", "mount", "filesystem", "device"))
    if name == "gpus":
        return all(isinstance(gpu, dict) and isinstance(gpu.get("name"), str) for gpu in value)
    return not (isinstance(value, _NUMBER) and not isinstance(value, bool)) or 0 <= value < 1 << 62
