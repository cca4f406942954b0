"""What the parent wants: a JSON file, whose path stands in the environment."""

from __future__ import annotations

import json
import os
from typing import Any

VARIABLE = "DLCHECK_SHIM"
PROTOCOL = 1


class Site:
    """Where the flagged loader is built: the lines of one call, or the module of a library."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.module: str | None = raw.get("built_by")
        self.file: str = os.path.realpath(raw["file"]) if self.module is None else ""
        self.first: int = raw.get("line") or 0
        self.last: int = raw.get("end_line") or self.first
        self.dataset: str | None = raw.get("dataset")  # its class: where one line builds several loaders

    def holds(self, file: str, line: int) -> bool:
        return self.first <= line <= self.last and file == self.file

    def is_module(self, name: str | None) -> bool:
        return self.module is not None and name == self.module


class Spec:
    def __init__(self, raw: dict[str, Any]) -> None:
        if raw.get("protocol") != PROTOCOL:
            raise ValueError(f"protocol {raw.get('protocol')!r} is not {PROTOCOL}")
        self.mode: str = raw["mode"]
        channel = raw["channel"]
        self.address: tuple[str, int] = (channel["host"], channel["port"])
        self.token: str = channel["token"]
        self.site: Site | None = Site(raw["site"]) if raw.get("site") else None
        self.audit: str = raw.get("audit", "log")
        self.arms: dict[str, dict[str, Any]] = raw.get("arms") or {"A": {}}
        self.patches: list[dict[str, Any]] = raw.get("patches") or []
        self.count: bool = bool(raw.get("count"))
        self.every_rank: bool = bool(raw.get("every_rank"))  # all of them are asked, not only the first
        self.segment: dict[str, Any] = raw.get("segment") or {}
        self.stop: dict[str, Any] = raw.get("stop") or {}
        self.start_method: str | None = raw.get("start_method")  # in place of the interpreter's own
        self.private: list[str] = [os.path.realpath(folder) for folder in raw.get("private") or []]
        self.keep: str | None = raw.get("keep")  # a folder for what the program is about to overwrite
        self.beside: str | None = raw.get("beside")  # another one, on the disk of the project
        # What is written down must outlive a folder for passing files.
        self.journal: str = raw.get("journal") or os.path.dirname(self.keep or "")
        self.limit: int = raw.get("limit", 1 << 30)  # bytes that are copied there


def read() -> Spec:
    with open(os.environ[VARIABLE], encoding="utf-8") as file:
        return Spec(json.load(file))
