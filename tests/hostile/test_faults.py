"""Killed, interrupted or refused at each write: no file is half written, the line is clear, the exit status right.

The process itself is real; what happens to it is brought about by an audit hook, at the very call.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import forked
import pytest
import sources

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="it needs a fork")

# `does` happens at the n-th event that writes; the number of such events stands in a file otherwise.
AT = """
import os, resource, signal, sys
_seen = [0]
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
def _hook(event, arguments):
    writes = event == "open" and not isinstance(arguments[0], int) and (arguments[2] or 0) & _WRITING
    writes = writes and os.fsdecode(arguments[0]) not in (os.devnull, "count")
    if writes or event in ("os.rename", "os.remove", "os.truncate", "os.chmod", "os.chown", "os.mkdir", "os.link"):
        _seen[0] += 1
        if _seen[0] == {at}:
            {does}
        if {at} < 0:
            with open("count", "w") as stream:
                stream.write(str(_seen[0]))
sys.addaudithook(_hook)
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
INTERRUPT = "signal.signal(signal.SIGINT, signal.default_int_handler); signal.raise_signal(signal.SIGINT)"
NO_ROOM = "raise OSError(28, 'No space left on device')"
# The kernel ends the process, or fails its write, when a file gets longer than so many bytes.
CUT = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.{action})
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes}, {bytes}))
"""
OLD = "what stood there before\n"


class Way(NamedTuple):
    """A command that writes a file, and what may stand there at any time, of which ``before`` is what stands there."""

    words: tuple[str, ...]
    file: str
    before: str | None
    status: int


WAYS = {
    "fix": Way(("check", "--no-cache", "--fix", "--unsafe-fixes", "train.py"), "train.py", sources.GOOD, 0),
    "a fix without a report": Way(
        ("check", "--no-cache", "--fix-only", "--unsafe-fixes", "train.py"), "train.py", sources.GOOD, 0
    ),
    "report": Way(("check", "--no-cache", "--output-file", "report.txt", "train.py"), "report.txt", None, 1),
    "another report": Way(("check", "--no-cache", "--output-file", "report.txt", "train.py"), "report.txt", OLD, 1),
    "baseline": Way(("baseline", "--baseline", "known.json", "train.py"), "known.json", None, 0),
    "another baseline": Way(
        ("check", "--no-cache", "--baseline", "known.json", "--update-baseline", "train.py"), "known.json",
        '{"schema": "dlcheck.baseline/1", "findings": []}\n', 0,
    ),
    "cache": Way(("check", "train.py"), ".dlcheck_cache/CACHEDIR.TAG", None, 1),
    "page of a rule": Way(("new-rule", "ABC101", "of-our-own", "--directory", "."), "ABC101-of-our-own.md", None, 0),
}  # fmt: skip


# Those that write as others do are for the long tier.
ALIKE = ("a fix without a report", "report", "baseline")
EACH = [pytest.param(name, marks=pytest.mark.long) if name in ALIKE else name for name in WAYS]


@pytest.fixture
def project(tmp_path: Path) -> Callable[[Way], Path]:
    def make(way: Way) -> Path:
        folder = tmp_path / "project"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "pyproject.toml").touch()
        (folder / "train.py").write_text(sources.GOOD, encoding="utf-8")
        if way.before is not None:
            (folder / way.file).write_text(way.before, encoding="utf-8")
        return folder

    return make


def content(file: Path) -> str | None:
    return file.read_text(encoding="utf-8") if file.exists() else None


def whole(way: Way, project: Callable[[Way], Path]) -> tuple[str, int]:
    """What the file holds in the end, and at how many moments something is written until then."""
    folder = project(way)
    done = forked.dlcheck(*way.words, cwd=folder, first=AT.format(at=-1, does="pass"))
    assert done.returncode == way.status, done.stderr
    after = content(folder / way.file)
    assert after is not None
    assert after != way.before
    return after, int((folder / "count").read_text())


def strays(folder: Path) -> list[str]:
    return [file.name for file in folder.rglob("*") if file.name.endswith(".tmp") or file.name.startswith(".train")]


@pytest.mark.parametrize("name", EACH)
def test_killed_at_each_write(name: str, project: Callable[[Way], Path]) -> None:
    way = WAYS[name]
    after, moments = whole(way, project)
    assert moments
    seen = set()
    for at in range(1, moments + 1):
        folder = project(way)
        done = forked.dlcheck(*way.words, cwd=folder, first=AT.format(at=at, does=KILL))
        assert done.returncode == -signal.SIGKILL
        left = content(folder / way.file)
        assert left in (way.before, after)
        seen.add(left)
        again = forked.dlcheck(*way.words, cwd=folder)  # what was left behind stands in nobody's way
        assert again.returncode in ((2,) if name == "page of a rule" and left is not None else (way.status, 0))
        assert name == "page of a rule" or content(folder / way.file) == after
    assert way.before in seen


@pytest.mark.parametrize("name", EACH)
def test_killed_in_the_middle_of_a_write(name: str, project: Callable[[Way], Path]) -> None:
    way = WAYS[name]
    after, _ = whole(way, project)
    ended = 0
    for limit in sorted({0, 1, len(after) // 3, len(after) // 2, len(after.encode()) - 1}):
        folder = project(way)
        done = forked.dlcheck(*way.words, cwd=folder, first=CUT.format(action="SIG_DFL", bytes=limit))
        ended += done.returncode == -signal.SIGXFSZ
        assert content(folder / way.file) in (way.before, after, *(("", after[:limit]) if name == "cache" else ()))
    assert ended


@pytest.mark.parametrize("name", [each for each in EACH if each != "cache"])
def test_interrupted_at_each_write(name: str, project: Callable[[Way], Path]) -> None:
    way = WAYS[name]
    after, moments = whole(way, project)
    for at in range(1, moments + 1):
        folder = project(way)
        done = forked.dlcheck(*way.words, cwd=folder, first=AT.format(at=at, does=INTERRUPT))
        assert (done.returncode, done.stderr.strip()) == (130, "dlcheck: interrupted")
        assert content(folder / way.file) in (way.before, after)
        assert strays(folder) == []


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("how", ["no room", "in the middle"])
def test_a_full_disk(name: str, how: str, project: Callable[[Way], Path]) -> None:
    """One line that names the file, exit status 2; without a cache it is only slower."""
    way = WAYS[name]
    after, moments = whole(way, project)
    firsts = [AT.format(at=at, does=NO_ROOM) for at in range(1, moments + 1)]
    if how == "in the middle":
        firsts = [CUT.format(action="SIG_IGN", bytes=limit) for limit in (0, 7, len(after) // 2)]
    for first in firsts:
        folder = project(way)
        done = forked.dlcheck(*way.words, cwd=folder, first=first)
        assert "Traceback" not in done.stderr
        assert strays(folder) == []
        left = content(folder / way.file)
        if name == "cache":
            # Its report is what could not be written, where everything that is written is cut.
            assert done.returncode == way.status or how == "in the middle"
            continue
        assert left == way.before or (left == after and done.returncode == way.status)
        if left == way.before and "No space" in done.stdout + done.stderr:
            assert done.returncode == 2
            assert way.file in done.stdout + done.stderr
            assert done.stderr.count("\n") <= 1


@pytest.mark.parametrize("at", [2, 4, 6])
def test_a_killed_run_leaves_a_cache_that_says_the_truth(at: int, project: Callable[[Way], Path]) -> None:
    way = WAYS["cache"]
    folder = project(way)
    truth = forked.dlcheck("check", "--no-cache", ".", cwd=folder)
    forked.dlcheck("check", ".", cwd=folder, first=AT.format(at=at, does=KILL))
    for _ in range(2):
        again = forked.dlcheck("check", ".", cwd=folder)
        assert (again.stdout, again.stderr, again.returncode) == (truth.stdout, "", truth.returncode)


RECORDING = """
import sys
sys.path[:0] = [{root!r}, {samples!r}]
import samples
from dlcheck.measure import store
record = samples.growing()
store.save(".", record)
"""


def test_a_record_is_whole_or_not_there(tmp_path: Path) -> None:
    script = RECORDING.format(root=str(ROOT), samples=str(ROOT / "tests" / "measure"))
    records = tmp_path / ".dlcheck" / "measurements"

    def save(does: str, at: int) -> int:
        code = AT.format(at=at, does=does) + script
        return subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode

    assert save("pass", -1) == 0
    (file,) = records.glob("*.json")
    text = file.read_bytes()
    moments = int((tmp_path / "count").read_text())
    killed = 0
    for at in range(1, moments + 1):
        if at % 2:  # with an earlier record, and without one
            file.unlink(missing_ok=True)
        before = file.read_bytes() if file.exists() else None
        killed += save(KILL, at) == -signal.SIGKILL
        assert (file.read_bytes() if file.exists() else None) in (before, text)
        assert [one for one in records.glob("*.json") if one != file] == []
    assert killed >= 3, "a temporary file is made, written and renamed; folders only the first time"


# A disk that is really full.


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("name", WAYS)
def test_a_disk_that_is_full(name: str, small: Path) -> None:
    way = WAYS[name]
    (small / "pyproject.toml").touch()
    (small / "train.py").write_text(sources.GOOD, encoding="utf-8")
    if way.before is not None:
        (small / way.file).write_text(way.before, encoding="utf-8")
    with open(small / "filler", "wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(4096))
        except OSError:
            pass
    done = forked.dlcheck(*way.words, cwd=small)
    assert "Traceback" not in done.stderr
    if name == "cache":
        assert (done.returncode, done.stderr) == (way.status, "")
    else:
        assert done.returncode == 2
        assert "No space left on device" in done.stdout + done.stderr
        assert way.file in done.stdout + done.stderr
    left = content(small / way.file)
    assert left == way.before or left == "" and name == "cache"
    assert strays(small) == []


# A home that is none.

HOMES = (
    {"HOME": "/proc/none"},
    {"HOME": ""},
    {"HOME": "relative"},
    {"HOME": "/dev/null"},
    {"XDG_CONFIG_HOME": "\n"},
    None,
)


@pytest.mark.parametrize("home", HOMES, ids=str)
def test_homes_that_are_none(home: dict[str, str] | None, project: Callable[[Way], Path]) -> None:
    folder = project(WAYS["cache"])
    (folder / ".git").mkdir()
    known = {"PATH": os.environ["PATH"]} if home is None else {**os.environ, **home}
    for words, status in ((("check", "."), 1), (("env",), 0)):
        done = forked.dlcheck(*words, cwd=folder, environment=known)
        assert (done.returncode, done.stderr) == (status, "")


@pytest.mark.slow
@pytest.mark.parametrize("words", ["check --output-format sarif .", "rules"])
def test_a_reader_that_has_seen_enough(words: str, project: Callable[[Way], Path]) -> None:
    folder = project(WAYS["cache"])
    command = f'set -o pipefail; "$0" -m dlcheck {words} | true'
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        ["bash", "-c", command, sys.executable],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode in (0, 1, 141)  # which of the two is faster is not ours to say


def test_the_folder_of_the_cache_leads_nowhere_else(project: Callable[[Way], Path]) -> None:
    """Whoever hands somebody a project can put a link where the cache would put its files."""
    folder = project(WAYS["cache"])
    victim = folder.parent / "victim"
    for name in (".gitignore", "CACHEDIR.TAG"):
        victim.write_text("mine\n", encoding="utf-8")
        shutil.rmtree(folder / ".dlcheck_cache", ignore_errors=True)
        (folder / ".dlcheck_cache").mkdir()
        (folder / ".dlcheck_cache" / name).symlink_to(victim)
        assert forked.dlcheck("check", ".", cwd=folder).returncode == 1
        assert victim.read_text(encoding="utf-8") == "mine\n"


def test_a_report_goes_where_it_was_sent(project: Callable[[Way], Path]) -> None:
    """Pipes and devices as they come; through links; other names and the mode of a file stay."""
    folder = project(WAYS["cache"])
    words = ("check", "--no-cache", "--output-format", "concise", "train.py", "--output-file")
    assert forked.dlcheck(*words, "/dev/stdout", cwd=folder).stdout.count("DLC101") == 1
    (folder / "real.txt").write_text(OLD, encoding="utf-8")
    (folder / "real.txt").chmod(0o640)
    (folder / "link.txt").symlink_to("real.txt")
    assert forked.dlcheck(*words, "link.txt", cwd=folder).returncode == 1
    assert (folder / "link.txt").is_symlink()
    assert (folder / "real.txt").stat().st_mode & 0o777 == 0o640
    text = (folder / "real.txt").read_text(encoding="utf-8")
    assert "DLC101" in text
    os.link(folder / "real.txt", folder / "other.txt")
    (folder / "real.txt").write_text(OLD, encoding="utf-8")
    assert forked.dlcheck(*words, "other.txt", cwd=folder).returncode == 1
    assert (folder / "real.txt").read_text(encoding="utf-8") == text
