"""Records on disk: `.dlcheck/measurements/`, one file for each finding and machine.

They are evidence, and small: meant to be committed, so that colleagues and CI see what a machine with
the right hardware has measured.  Hence neither the name of a host nor that of a user stands in them,
and paths are relative to the project's top.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dlcheck import files, writing
from dlcheck.findings import Finding, Measurement, fingerprint_under, squeezed
from dlcheck.harmless import printable
from dlcheck.measure import identity, words
from dlcheck.measure.record import Record
from dlcheck.measure.serial import RecordError, from_json, to_json

__all__ = ["RecordError", "Records", "Stored", "from_json", "key", "load", "save", "statement_hash", "to_json"]

# More than this no measurement writes.
MAX_BYTES = 16 << 20
DECIDED = ("confirmed", "refuted-no-effect", "refuted-harmful", "suggestion-breaks")

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Stored:
    """A record, the file that it was read from, and how it stands to this machine and its versions."""

    record: Record
    file: str
    here: bool
    outdated: bool

    @property
    def line(self) -> str:
        return words.line(self.record, here=self.here, outdated=self.outdated)

    @property
    def measurement(self) -> Measurement:
        record, effect, metric = self.record, self.record.effect, self.record.metric
        return Measurement(
            verdict=record.verdict,
            ratio=_finite(effect.ratio) if effect else None,
            ci=(_finite(effect.ci[0]), _finite(effect.ci[1])) if effect else None,
            a=_finite(effect.a) if effect else None,
            b=_finite(effect.b) if effect else None,
            unit=metric.unit if effect and metric else None,
            evidence=record.evidence,
            date=record.date,
            record=record.id,
            text=self.line,
            here=self.here,
            outdated=self.outdated,
        )


@dataclass
class Records:
    """The records of a project; ``problems`` holds a line for each file that is none."""

    root: str
    problems: list[str] = field(default_factory=list)
    _by_key: dict[str, list[Stored]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Stored]:
        return (stored for group in self._by_key.values() for stored in group)

    def for_finding(self, finding: Finding) -> Stored | None:
        """The record that speaks of a finding: this machine's, else the best that another one left."""
        known = self._by_key.get(key(finding, self.root), ())
        digest = statement_hash(finding)
        fitting = [one for one in known if one.record.location.statement in ("", digest)]
        return max(fitting, key=_worth, default=None)

    def attached(self, finding: Finding) -> Finding:
        """The finding with what its record says; as it is where there is none."""
        stored = self.for_finding(finding)
        return replace(finding, measurement=stored.measurement) if stored else finding

    def stale(self, findings: Iterable[Finding], checked: Collection[str], codes: Collection[str]) -> list[Stored]:
        """The records that match no finding any more.

        ``findings`` are all that a run found, hidden and known ones included; ``checked`` are the files
        (absolute) that it looked at, ``codes`` the rules that it checked.  Of what a run did not look
        at, its silence says nothing; of a file that is gone nothing more will be found, by any rule.
        """
        alive = {(key(finding, self.root), statement_hash(finding)) for finding in findings}
        prints = {print_ for print_, _ in alive}
        return [
            stored
            for stored in self
            if self._looked_at(stored.record, checked, codes) and not _alive(stored.record, alive, prints)
        ]

    def _looked_at(self, record: Record, checked: Collection[str], codes: Collection[str]) -> bool:
        file = os.path.normpath(os.path.join(self.root, record.location.path))
        return not os.path.exists(file) or (record.code in codes and file in checked)

    def prune(self, findings: Iterable[Finding], checked: Collection[str], codes: Collection[str]) -> list[Stored]:
        """Delete the files of stale records; those that are gone."""
        gone = []
        for stored in self.stale(findings, checked, codes):
            try:
                os.unlink(stored.file)
            except OSError as error:
                self.problems.append(f"{files.shown(stored.file)}: {error.strerror or error}")
                continue
            gone.append(stored)
            self._by_key[stored.record.fingerprint].remove(stored)
        return gone

    def add(self, stored: Stored) -> None:
        self._by_key.setdefault(stored.record.fingerprint, []).append(stored)


def _alive(record: Record, alive: Collection[tuple[str, str]], prints: Collection[str]) -> bool:
    statement = record.location.statement
    return (record.fingerprint, statement) in alive if statement else record.fingerprint in prints


def _worth(stored: Stored) -> tuple[bool, bool, bool, str, str]:
    record = stored.record
    return (stored.here, not stored.outdated, record.verdict in DECIDED, record.date, record.id)


def _finite(value: float) -> float | None:
    return value if value - value == 0 else None


# What a record is known by


def key(finding: Finding, root: str) -> str:
    """What a record's ``fingerprint`` is: the finding's, under the path that its file has from the project's top.

    That of a report holds the path from the current folder, and would make another finding of it elsewhere.
    """
    return fingerprint_under(finding, path_below(finding.place.path, root))


def path_below(path: str, root: str) -> str:
    """A path of a report as one from the project's top, with ``/``."""
    try:
        return os.path.relpath(os.path.abspath(path), root).replace(os.sep, "/")
    except ValueError:  # on another drive
        return path


def statement_hash(finding: Finding) -> str:
    """What ``location.statement`` is: a hash of the statement's text without whitespace."""
    text = squeezed(finding.statement).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=8).hexdigest()


# Reading


def load(root: str, *, machine: Mapping[str, Any] | None = None, software: Mapping[str, Any] | None = None) -> Records:
    """The records of the project at ``root``.

    ``machine`` is which one this is (`identity.identity()` where it is not given);
    ``software`` holds the versions of ``torch`` and ``python`` that the program runs under, where they are
    known: a record of other minor versions is outdated.
    """
    folder = os.path.join(root, files.RECORDS)
    records = Records(root)
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json") and not name.startswith("."))
    except FileNotFoundError:
        return records
    except OSError as error:
        records.problems.append(f"{files.shown(folder)}: no measurements read: {error.strerror or error}")
        return records
    if not names:
        return records
    here = identity.fingerprint(identity.identity() if machine is None else machine)
    versions = installed() if software is None else software
    for name in names:
        file = os.path.join(folder, name)
        try:
            record = read(file)
        except RecordError as error:
            records.problems.append(f"{files.shown(file)}: {error}")
        else:
            own = identity.fingerprint(identity.of(record.machine)) == here
            records.add(Stored(record, file, own, _outdated(record, versions)))
    return records


def read(file: str) -> Record:
    """The record in a file; raises RecordError, with one line for people, where there is none."""
    try:
        data = files.read(file)
    except files.UnusableError as error:
        raise RecordError(error.message) from None
    if len(data) > MAX_BYTES:
        raise RecordError("too large for a measurement record")
    try:
        return from_json(json.loads(data, parse_constant=_no_constant))
    except RecordError:
        raise
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not a measurement record: {printable(str(error))[:120]}") from None


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def installed() -> dict[str, str]:
    """The versions beside dlcheck, which are those of the program where torch is installed there too."""
    from importlib import metadata

    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return {}
    import platform

    return {"torch": torch, "python": platform.python_version()}


def _outdated(record: Record, software: Mapping[str, Any]) -> bool:
    pairs = ((record.software.get(name), software.get(name)) for name in ("torch", "python"))
    return any(_minor(then) != _minor(now) for then, now in pairs if then and now)


def _minor(version: object) -> list[str]:
    return re.findall(r"\d+", str(version))[:2]


# Writing


def save(root: str, record: Record) -> str:
    """Write a record, in place of what this machine said of the same finding before; the file.

    Which machine this is is added where the record does not say it (``machine.identity``), and the folders
    of the project and of the user are taken out of its texts.  Raises OSError.
    """
    machine = {"identity": identity.identity(), **record.machine}
    document = to_json(replace(record, machine=machine))
    name = f"{_named(record)}-{identity.fingerprint(identity.of(machine))}.json"
    return write(root, files.RECORDS, name, document)


def write(root: str, folder: str, name: str, document: Mapping[str, Any]) -> str:
    """Write JSON into a folder below a project's top, at once and without what names its owner; the file."""
    where = os.path.join(root, folder)
    os.makedirs(where, exist_ok=True)
    file = os.path.join(where, name)
    clean = _without_folders(document, root)
    text = json.dumps(clean, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    writing.replace(file, text.encode("utf-8", "backslashreplace"))
    return file


def _named(record: Record) -> str:
    words_ = (record.code, record.fingerprint)
    return "-".join(word if _PLAIN.fullmatch(word) else _digest(word) for word in words_)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _without_folders(value: Any, root: str) -> Any:
    """JSON data without the project's folder and the user's: they name somebody, and mean nothing elsewhere."""
    home = os.path.expanduser("~")
    known = [(os.path.abspath(root), "."), (home, "~")]
    pattern = {re.escape(folder.rstrip(os.sep)): sign for folder, sign in known if len(folder.strip(os.sep)) > 1}
    if not pattern:
        return value
    found = re.compile(rf"(?<![\w.~-])({'|'.join(pattern)})(?![\w-])")
    signs = {folder.rstrip(os.sep): sign for folder, sign in known}

    def clean(item: Any) -> Any:
        if isinstance(item, str):
            return found.sub(lambda match: signs[match[1]], item)
        if isinstance(item, dict):
            return {key: clean(one) for key, one in item.items()}
        return [clean(one) for one in item] if isinstance(item, list) else item

    return clean(value)
