"""Whatever a measured program does to files, they are afterwards as they were, and what was not there is gone."""

from __future__ import annotations

import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from dlcheck.measure import leftovers, program, undoing
from dlcheck.measure.program import Outcome
from dlcheck.measure.shim.dlcheck_shim import keeping, saving

ROOT = Path(__file__).resolve().parents[2]
POSIX = os.name == "posix"
posix_only = pytest.mark.skipif(not POSIX, reason="links and modes of Unix")


def run(text: str, folder: Path, **spec: Any) -> Outcome:
    """Run a few lines in a folder; they lie outside of it, and so does what they may have for themselves."""
    file = folder.parent / "few.py"
    file.write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    wanted = {"mode": "watch", **spec}
    return program.run([sys.executable, str(file)], wanted, cwd=folder, env=environment, budget_s=60)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project with a bit of everything."""
    folder = tmp_path / "project"
    (folder / "old" / "deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    for name in ("a.txt", "b.txt", "old/one.txt", "old/deep/two.txt"):
        (folder / name).write_text(f"of {name}\n")
    (folder / "large.log").write_bytes(b"line of a log\n" * 200_000)  # of which only the length is kept
    if POSIX:
        (folder / "link").symlink_to("a.txt")
        (folder / "folder-link").symlink_to("old")
        os.link(folder / "b.txt", folder / "b-again.txt")
        os.chmod(folder / "b.txt", 0o640)
    for number, path in enumerate(sorted(folder.rglob("*"))):
        os.utime(path, ns=(10**18, 10**18 + 1000 * number), follow_symlinks=False)
    return folder


def picture(folder: Path) -> dict[str, Any]:
    """All that is there: kinds, modes, contents, times, and which names are of the same file."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        kind: Any = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
        if path.is_symlink():
            found[path.name] = (*kind, os.readlink(path), status.st_mtime_ns)
        elif path.is_file():
            names = sorted(other.name for other in folder.rglob("*") if other.is_file() and other.samefile(path))
            found[path.name] = (*kind, path.read_bytes(), status.st_mtime_ns, names)
        else:
            found[path.name] = (*kind, status.st_mtime_ns)
    return found


FILES = {
    "overwritten": "open('a.txt', 'w').write('new')",
    "appended": "open('a.txt', 'a').write('more'); open('large.log', 'a').write('more'); open('large.log', 'w')",
    "updated": "f = open('a.txt', 'r+'); f.seek(1); f.write('X'); f.close()",
    "truncated": "os.truncate('a.txt', 2)",
    "truncated by its number": "f = open('large.log', 'ab'); os.ftruncate(f.fileno(), 3); f.write(b'x')",
    "emptied": "os.close(os.open('a.txt', os.O_WRONLY | os.O_TRUNC))",
    "mapped": "f = open('a.txt', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[:2] = b'XY'; m.close(); f.close()",
    "removed": "os.remove('a.txt'); open('a.txt', 'w').write('anew'); os.remove('a.txt')",
    "replaced": "open('t', 'w').write('new'); os.replace('t', 'a.txt'); open('t', 'w'); os.replace('t', 'a.txt')",
    "exchanged": "os.rename('a.txt', 't'); os.rename('b.txt', 'a.txt'); os.rename('t', 'b.txt')",
    "moved and changed": "os.rename('a.txt', 'c.txt'); open('c.txt', 'w').write('X'); open('a.txt', 'w').write('Y')",
    "moved into a new folder": "os.mkdir('n'); shutil.move('a.txt', 'n/a.txt'); open('n/a.txt', 'a').write('X')",
    "copied over": "shutil.copy('b.txt', 'a.txt')",
    "touched": "pathlib.Path('a.txt').touch()",
    "folder renamed": "os.rename('old', 'new'); open('new/one.txt', 'w'); os.mkdir('old'); open('old/z', 'w')",
    "folder moved": "os.mkdir('n'); shutil.move('old', 'n'); os.remove('n/old/deep/two.txt')",
    "folder moved out and in": "shutil.move('old', os.environ['OUT']); shutil.move(os.environ['OUT'] + '/old', 'back')",
    "folder deleted": "shutil.rmtree('old'); os.makedirs('old/deep'); open('old/one.txt', 'w').write('another')",
    "folder became a file": "shutil.rmtree('old'); open('old', 'w').write('a file')",
    "file became a folder": "os.remove('a.txt'); os.makedirs('a.txt/deep'); open('a.txt/deep/x', 'w').write('X')",
    "empty folder": "os.rmdir('empty'); os.rename('old', 'empty')",
    "folder of its own renamed": "os.makedirs('r/s'); open('r/s/x', 'w'); os.rename('r', 'q'); os.mkdir('r')",
    "run made twice": "os.makedirs('runs/1'); open('runs/1/x', 'x').write('X'); os.makedirs('runs/2')",
    "rename that fails": "\ntry: os.rename('old', 'a.txt')\nexcept OSError: pass\nopen('a.txt', 'w').write('X')",
    "database": "import sqlite3; c = sqlite3.connect('new.db'); c.execute('create table t (x)'); c.commit()",
    "by workers": "multiprocessing.get_context('fork').Process(target=lambda: open('a.txt', 'w').write('X')).start()",
    "by another program": 'subprocess.run([sys.executable, \'-c\', \'open("a.txt", "w"); open("n", "w")\'])',
}
LINKS = {
    "link replaced": "os.remove('link'); open('link', 'w').write('a file')",
    "link redirected": "os.symlink('b.txt', 't'); os.replace('t', 'link')",
    "written through a link": "open('link', 'w').write('X'); open('folder-link/one.txt', 'a').write('X')",
    "link made and written through": "os.symlink('a.txt', 'l'); open('l', 'w').write('X')",
    "link to a folder removed": "os.remove('folder-link'); os.mkdir('folder-link')",
    "mode": "os.chmod('b.txt', 0o400); os.chmod('old', 0o700); os.chmod('link', 0o600)",
    "read-only": "open('a.txt', 'w').write('X'); os.chmod('a.txt', 0o444)",
    "file with two names": "open('b.txt', 'w').write('X')",
    "file with two names, removed": "os.remove('b.txt'); open('b-again.txt', 'w').write('X')",
    "second name made and written": "os.link('a.txt', 'h'); open('h', 'w').write('X'); os.remove('a.txt')",
    "open when it is removed": "f = open('a.txt', 'r+'); os.remove('a.txt'); f.write('X'); f.close()",
}
IMPORTS = "import mmap, multiprocessing, os, pathlib, shutil, subprocess, sys\n"


@pytest.mark.parametrize("what", FILES)
def test_files_are_as_they_were(what: str, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if what == "by workers" and not hasattr(os, "fork"):
        pytest.skip("needs fork")
    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.setenv("OUT", str(out))
    before = picture(tree)
    outcome = run(IMPORTS + FILES[what], tree)

    assert outcome.status == 0, outcome.output
    assert picture(tree) == before
    assert list(out.iterdir()) == []
    assert outcome.side_effects.keys() <= {"restored", "removed", "other"}
    assert outcome.side_effects.get("restored") or outcome.side_effects.get("removed") or what == "touched"


@posix_only
@pytest.mark.parametrize("what", LINKS)
def test_links_and_modes_are_as_they_were(what: str, tree: Path) -> None:
    before = picture(tree)
    outcome = run(IMPORTS + LINKS[what], tree)

    assert outcome.status == 0, outcome.output
    assert picture(tree) == before
    assert outcome.side_effects["restored"]


def test_what_was_done_is_told_by_its_highest_name(tree: Path) -> None:
    text = (
        IMPORTS
        + "os.makedirs('runs/1/logs'); open('runs/1/logs/x', 'w').write('X'); open('a.txt', 'w'); open('n', 'w')"
    )
    effects = run(text, tree).side_effects

    assert effects == {"removed": [str(tree / "n"), str(tree / "runs")], "restored": [str(tree / "a.txt")]}


def test_a_folder_with_a_fixed_name_can_be_made_again(tree: Path) -> None:
    """Each start finds what the first one found."""
    text = "import os\nos.makedirs('runs/1')\nopen('runs/1/log', 'x').write('begun')\nprint(sorted(os.listdir()))"
    seen = [run(text, tree) for _ in range(2)]

    assert [outcome.status for outcome in seen] == [0, 0]
    assert seen[0].output == seen[1].output
    assert "runs" in seen[0].output


def test_new_files_stay_where_that_is_asked_for(tree: Path) -> None:
    text = "import os\nos.makedirs('runs/1')\nopen('runs/1/log', 'x').write('begun')\nopen('a.txt', 'w')"
    outcome = run(text, tree, audit="keep")

    assert (tree / "runs" / "1" / "log").read_text() == "begun"
    assert (tree / "a.txt").read_text() == "of a.txt\n"
    assert outcome.side_effects == {"created": [str(tree / "runs")], "restored": [str(tree / "a.txt")]}


def test_names_of_what_was_moved_away_are_not_kept_for_what_is_new(tree: Path) -> None:
    """Else the user's folder would stay under another name, and the next start would find it there."""
    text = IMPORTS + (
        "os.rename('old', 'older'); os.mkdir('old'); open('old/new', 'w').write('new');"
        "os.rename('a.txt', 'b.txt'); open('a.txt', 'w').write('new'); open('made', 'w').write('new');"
        "os.mkdir('r'); open('r/x', 'w').write('X'); os.rename('r', 'q'); os.mkdir('r'); open('r/x', 'w').write('Y')"
    )
    before = picture(tree)
    for _ in range(2):
        outcome = run(text, tree, audit="keep")
        assert outcome.status == 0, outcome.output
        assert "not_restored" not in outcome.side_effects
        assert sorted(outcome.side_effects["created"]) == [str(tree / name) for name in ("made", "q", "r")]
        assert ((tree / "q" / "x").read_text(), (tree / "r" / "x").read_text()) == ("X", "Y")
        after = picture(tree)
        assert {name: after[name] for name in before} == before
        (tree / "made").unlink()
        shutil.rmtree(tree / "r")
        shutil.rmtree(tree / "q")


def test_a_program_that_clears_its_folder_does_not_take_away_what_is_kept(tree: Path) -> None:
    before = picture(tree)
    text = """
import os, shutil
for name in os.listdir():
    shutil.rmtree(name, ignore_errors=True) if os.path.isdir(name) and not os.path.islink(name) else os.remove(name)
print(os.listdir())
"""
    outcome = run(text, tree)

    assert outcome.output == "['.dlcheck']"
    assert picture(tree) == before


def test_times_of_folders_that_others_use_are_theirs(tree: Path) -> None:
    text = """
import os, subprocess, sys
open("old/own", "w").write("X")
open("empty/own", "w").write("X")
"""
    old = os.stat(tree / "empty").st_mtime_ns
    undo, ran = undoing.Undoing.run, []

    def first_another(self: undoing.Undoing) -> dict[str, Any]:
        time.sleep(0.05)  # the clock of files has steps
        (tree / "old" / "result").write_text("of a week")
        ran.append(os.stat(tree / "old").st_mtime_ns)
        return undo(self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(undoing.Undoing, "run", first_another)
        assert run(text, tree).status == 0
    assert os.stat(tree / "empty").st_mtime_ns == old
    assert os.stat(tree / "old").st_mtime_ns >= ran[0]


def test_caches_large_files_and_what_lies_elsewhere_stay(tree: Path, tmp_path: Path) -> None:
    text = f"""
import os
for folder in ("package/__pycache__", ".cache/hub", "data", "runs"):
    os.makedirs(folder)
for name in ("package/__pycache__/x.pyc", ".cache/hub/x", "data/label", "runs/x", r"{tmp_path}/elsewhere"):
    open(name, "w").write("X")
with open("data/download", "wb") as file:
    file.truncate({undoing.DEAR})
"""
    outcome = run(text, tree)

    assert outcome.status == 0, outcome.output
    left = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    assert left >= {"package/__pycache__/x.pyc", ".cache/hub/x", "data/label", "data/download"}
    assert (tmp_path / "elsewhere").exists()
    assert outcome.side_effects["removed"] == [str(tree / "runs")]
    created = {os.path.relpath(path, tree) for path in outcome.side_effects["created"]}
    assert created >= {".cache", "data", os.path.join("..", "elsewhere")}


def test_nothing_is_removed_from_the_home_folder(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tree))
    monkeypatch.setenv("USERPROFILE", str(tree))
    outcome = run("open('new', 'w').write('X'); open('a.txt', 'w')", tree)

    assert outcome.side_effects == {"created": [str(tree / "new")], "restored": [str(tree / "a.txt")]}


def test_what_others_have_put_there_is_not_removed(tree: Path) -> None:
    """Another program writes into the folder that this one has made, and this one says nothing of it."""
    text = """
import os, subprocess, sys
os.makedirs("runs/1")
open("runs/1/own", "w").write("X")
environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "DLCHECK_SHIM")}
subprocess.run([sys.executable, "-c", "open('runs/1/result', 'w').write('of a week')"], env=environment, check=True)
"""
    outcome = run(text, tree)

    assert outcome.status == 0, outcome.output
    assert [path.name for path in (tree / "runs" / "1").iterdir()] == ["result"]
    assert outcome.side_effects["created"] == [str(tree / "runs")]
    assert outcome.side_effects["removed"] == [str(tree / "runs" / "1" / "own")]


def journal(folder: Path, *steps: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"at": number, **step}) for number, step in enumerate(steps)]
    (folder / "journal-1.jsonl").write_text("\n".join(lines) + "\n" + '{"at": 99, "new": "cut')


def test_folders_of_workers_that_nobody_waits_for_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gone = next(pid for pid in range(2**22 - 2, 1, -1) if not psutil.pid_exists(pid))
    for name, age in ((f"worker-{gone}-x", 2), (f"worker-{gone}-young", 0), (f"worker-{os.getpid()}-x", 2)):
        folder = Path(tempfile.mkdtemp(prefix="dlcheck-")).rename(tmp_path / f"dlcheck-{name}")
        os.utime(folder, (time.time() - age * leftovers.A_DAY,) * 2)
    leftovers.put_back([str(tmp_path)])

    assert not (tmp_path / f"dlcheck-worker-{gone}-x").exists()
    assert len(list(tmp_path.glob("dlcheck-worker-*"))) == 2


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A project, with what a run has left in it that was killed: it has replaced `mine`, and lengthened `log`."""
    project, private = tmp_path / "project", tmp_path / "dlcheck-x"
    project.mkdir()
    private.mkdir(mode=0o700)
    (project / "pyproject.toml").touch()
    note = leftovers.note(os.path.realpath(project), private)
    assert note.open()
    described = {"mode": 0o644, "owner": [os.getuid(), os.getgid()] if POSIX else [0, 0], "times": [1, 1]}
    (private / "copy-1").write_text("of a year")
    (note.kept / "link-1").write_text("of a week")
    mine, log = str(project / "mine"), str(project / "log")
    journal(
        note.kept,
        {"written": mine, "copy": str(private / "copy-1"), **described},
        {"gone": log, "copy": str(note.kept / "link-1"), **described},
    )
    (project / "mine").write_text("new")
    stamps = {"copies": leftovers.stamp(private), "stamp": leftovers.stamp(note.kept)}
    known = {"pid": 2**22 - 1, "started": 1e9, "host": platform.node(), "folder": str(private), "scope": {}}
    note.write(**known, **stamps, ended=time.time_ns() + 10**10)
    return project


def test_what_was_killed_is_put_back_wherever_passing_files_lie_now(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "another").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "another"))
    (line,) = leftovers.put_back([str(killed)])

    assert "was killed: put back " in line
    assert ((killed / "mine").read_text(), (killed / "log").read_text()) == ("of a year", "of a week")
    assert sorted(os.listdir(killed)) == ["log", "mine", "pyproject.toml"]
    assert not (tmp_path / "dlcheck-x").exists()
    (killed / ".dlcheck").mkdir()
    (killed / ".dlcheck" / "lock").write_text("1\n")  # of one that was killed between two starts
    assert leftovers.put_back([str(killed)]) == []
    assert not (killed / ".dlcheck").exists()


def test_copies_that_are_gone_are_told_and_the_others_put_back(killed: Path, tmp_path: Path) -> None:
    """As after a new start of a machine whose /tmp is in memory; what lies there then may be anybody's."""
    shutil.rmtree(tmp_path / "dlcheck-x")
    (tmp_path / "dlcheck-x").mkdir(mode=0o700)
    (tmp_path / "dlcheck-x" / "copy-1").write_text("a trap")
    (line,) = leftovers.put_back([str(killed)])

    assert line.endswith(f"mine (its copy in {tmp_path / 'dlcheck-x'} is gone)")
    assert ((killed / "mine").read_text(), (killed / "log").read_text()) == ("new", "of a week")
    assert (tmp_path / "dlcheck-x" / "copy-1").exists()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("copied", "is gone, or not what"),
        ("shared", "not written by a measurement of yours"),
        ("cut", "cannot be read"),
    ],
)
def test_a_note_that_is_not_ours_is_neither_followed_nor_deleted(how: str, said: str, killed: Path) -> None:
    """A project that came from elsewhere, with a note in it, and a journal that would write anywhere."""
    if how == "shared" and not POSIX:
        pytest.skip("no modes there")
    (note,) = (killed / ".dlcheck").glob("running-*.json")
    (kept,) = (killed / ".dlcheck").glob("kept-*")
    if how == "copied":
        shutil.copytree(kept, killed / "again")
        shutil.rmtree(kept)
        (killed / "again").rename(kept)
    elif how == "shared":
        note.chmod(0o644)
    else:
        note.write_text(note.read_text()[:50])
    (line,) = leftovers.put_back([str(killed)])

    assert said in line
    assert ".dlcheck/running-x.json is left as it is, and nothing is put back by it" in line.replace(os.sep, "/")
    assert (killed / "mine").read_text() == "new"
    assert note.exists()
    assert (kept / "link-1").exists()


def test_what_another_machine_has_begun_is_told_and_left(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "another")
    here = sorted(path.name for path in killed.rglob("*"))
    (line,) = leftovers.put_back([str(killed)])

    assert "has not ended: `dlcheck measure` on " in line
    assert sorted(path.name for path in killed.rglob("*")) == here


def test_nothing_is_put_back_while_somebody_is_at_work(killed: Path) -> None:
    text = f"from dlcheck.measure import leftovers\nprint(leftovers.put_back([{str(killed)!r}]))"
    with leftovers.lock(os.path.realpath(killed)) as held:
        assert held
        again = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True)
    assert again.stdout == "[]\n"
    assert (killed / "mine").read_text() == "new"
    assert "was killed" in leftovers.put_back([str(killed)])[0]


def test_copies_of_what_could_not_be_put_back_stay_and_nothing_else(killed: Path, tmp_path: Path) -> None:
    (note,) = (killed / ".dlcheck").glob("running-*.json")
    leftovers.Note(note).write(**{**json.loads(note.read_text()), "ended": time.time_ns() - 10**10})
    (line,) = leftovers.put_back([str(killed)])

    assert f"mine (changed since; as it was: {tmp_path / 'dlcheck-x' / 'copy-1'})" in line
    assert os.listdir(tmp_path / "dlcheck-x") == ["copy-1"]
    assert not (killed / ".dlcheck").exists()


def test_what_was_changed_since_the_program_ended_is_somebody_elses(tmp_path: Path) -> None:
    mine, new, copy = tmp_path / "mine", tmp_path / "new", tmp_path / "copy-1"
    mine.write_text("results of today")
    new.write_text("results of today, too")
    copy.write_text("results of yesterday")
    described = {"mode": 0o644, "owner": [os.getuid() if POSIX else 0, os.getgid() if POSIX else 0], "times": [1, 1]}
    journal(tmp_path / "private", {"new": str(new)}, {"written": str(mine), "copy": str(copy), **described})
    undo = undoing.Undoing(tmp_path / "private", undoing.Scope([str(tmp_path)]), ended_ns=time.time_ns() - 10**10)
    told = undo.run()

    assert mine.read_text() == "results of today"
    assert new.read_text() == "results of today, too"
    assert told == {
        "created": [str(new)],
        "not_restored": [{"path": str(mine), "copy": str(copy), "why": "changed since"}],
    }


def test_undoing_goes_on_where_it_was_broken_off(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After whichever step, before that is noted: one step is done twice."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = picture(tree)
    text = IMPORTS + (
        "shutil.rmtree('old'); os.makedirs('old/deep'); open('old/one.txt', 'w').write('X');"
        "os.rename('a.txt', 'c.txt'); open('c.txt', 'w').write('X');"
        "os.rename('b.txt', 'a.txt'); open('a.txt', 'w').write('Y'); os.mkdir('runs')"
    )
    undone = undoing.Undoing._undo

    class Broken(Exception):
        pass

    for number in range(1, 30):
        left = [number]

        def once(self: Any, step: Any, left: list[int] = left) -> None:
            undone(self, step)
            left[0] -= 1
            if not left[0]:
                raise Broken

        monkeypatch.setattr(undoing.Undoing, "_undo", once)
        over = True
        with monkeypatch.context() as patched:
            patched.setattr(leftovers.Note, "remove", lambda *_, **__: None)
            patched.setattr(shutil, "rmtree", lambda *_, **__: None)
            try:
                run(text, tree)
            except Broken:
                over = False
        if over:
            break
        monkeypatch.setattr(undoing.Undoing, "_undo", undone)
        (note,) = (tree / ".dlcheck").glob("running-*.json")
        facts = json.loads(note.read_text())
        undoing.Undoing(leftovers.Note(note).kept, undoing.Scope([str(tree)]), facts["ended"]).run()
        leftovers.Note(note).remove()
        assert picture(tree) == before, number
    assert number > 8


# -- what is too much


def test_the_documentation_names_the_limits() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "measure.md").read_text(encoding="utf-8")
    for limit in (program.KEPT, undoing.DEAR, saving.MAPPED, keeping.SMALL):
        assert f"{limit >> 20} MB" in text


def test_a_program_is_stopped_before_more_is_changed_than_can_be_kept(tree: Path) -> None:
    (tree / "weights.bin").write_bytes(b"x" * 3_000_000)
    text = "open('a.txt', 'w')\nopen('weights.bin', 'r+b').write(b'gone')\nopen('never', 'w')"
    outcome = run(text, tree, limit=2 << 20)

    assert outcome.sentence == (
        f"the program was stopped before it changes {tree / 'weights.bin'} (3 MB): "
        "more than 2 MB would have to be copied to put it back afterwards"
    )
    assert (tree / "weights.bin").read_bytes() == b"x" * 3_000_000
    assert (tree / "a.txt").read_text() == "of a.txt\n"


def test_what_only_loses_its_name_is_kept_whatever_its_size(tree: Path) -> None:
    (tree / "old" / "weights.bin").write_bytes(b"x" * 3_000_000)
    before = picture(tree)
    text = "import os, shutil\nshutil.rmtree('old')\nopen('t', 'w').write('X')\nos.replace('t', 'large.log')"
    outcome = run(text, tree, limit=1 << 20)

    assert outcome.status == 0, outcome.output
    assert picture(tree) == before


@pytest.mark.skipif(find_spec("numpy") is None, reason="needs numpy")
def test_large_arrays_are_mapped_without_a_copy(tree: Path) -> None:
    """`numpy.memmap` opens for writing by itself."""
    with open(tree / "tokens.bin", "wb") as file:
        file.truncate(80 << 20)
    text = """
import numpy
tokens = numpy.memmap("tokens.bin", dtype=numpy.uint16)
tokens[:5] = 7
tokens.flush()
print(len(tokens), tokens[:5].sum(), numpy.memmap("tokens.bin", numpy.uint8, "r").sum())
small = numpy.memmap("a.txt", numpy.uint8, "r+")
small[0] = 0
"""
    outcome = run(text, tree, limit=1 << 20)

    assert outcome.output == f"{40 << 20} 35 0"
    assert outcome.side_effects == {"private": [str(tree / "tokens.bin")], "restored": [str(tree / "a.txt")]}
    assert (tree / "a.txt").read_text() == "of a.txt\n"


@pytest.mark.skipif(find_spec("h5py") is None, reason="needs h5py")
def test_files_that_are_written_in_c_are_put_back_where_their_library_is_known(tree: Path) -> None:
    (tree / "results.h5").write_text("a year of results")
    text = """
import h5py, os
os.mkdir("runs")
for name, mode in (("results.h5", "w"), ("results.h5", "a"), ("runs/new.h5", "x")):
    with h5py.File(name, mode) as file:
        file[mode] = [1, 2]
"""
    outcome = run(text, tree)

    assert outcome.status == 0, outcome.output
    assert (tree / "results.h5").read_text() == "a year of results"
    assert outcome.side_effects["removed"] == [str(tree / "runs")]
    assert outcome.side_effects["restored"] == [str(tree / "results.h5")]
