"""`--fix`, `--diff` and what they leave alone: bytes around an edit, files that changed, notebooks, standard input."""

from __future__ import annotations

import codecs
import io
import json
import os
import signal
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

from dlcheck import cli
from dlcheck.engine import Report
from dlcheck.findings import Edit, Finding, Fix
from dlcheck.fixing import Change, fix
from dlcheck.source import Source

if sys.platform != "win32":
    import resource

BEFORE = """\
import torch
from torch.utils.data import DataLoader


def train(dataset, model, device):
    loader = DataLoader(dataset, num_workers=4, pin_memory=True)  # größer
    for images, labels in loader:
        images = images.cuda()
        model(images).sum().backward()
"""
AFTER = BEFORE.replace(".cuda()", ".cuda(non_blocking=True)")
BOTH = AFTER.replace("pin_memory=True)", "pin_memory=True, persistent_workers=True)")


class Session(NamedTuple):
    returncode: int
    stdout: bytes
    stderr: bytes


def run(*words: str, cwd: Path, stdin: bytes = b"") -> Session:
    """The program in this process, with streams of bytes."""
    given = {"stdin": stdin, "stdout": b"", "stderr": b""}
    streams = {name: io.TextIOWrapper(io.BytesIO(data), "utf-8") for name, data in given.items()}
    here = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        patch.setattr(sys, "argv", ["dlcheck", "check", "--isolated", "--color=never", *words])
        os.chdir(cwd)
        try:
            cli.main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        finally:
            os.chdir(here)
        out, err = (_written(streams[name]) for name in ("stdout", "stderr"))
    return Session(status, out, err)


def _written(stream: io.TextIOWrapper) -> bytes:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_bytes(BEFORE.encode())
    return tmp_path


def test_safe_fixes_are_applied_and_counted(folder: Path) -> None:
    found = run("--fix", "train.py", cwd=folder)
    assert (folder / "train.py").read_bytes() == AFTER.encode()
    assert found.stdout.decode().splitlines()[-1:] == ["No findings in 1 file; 1 fixed."]
    assert (found.returncode, found.stderr) == (0, b"")


def test_a_second_run_changes_nothing(folder: Path) -> None:
    run("--fix", "train.py", cwd=folder)
    before = (folder / "train.py").stat()
    assert run("--fix", "--exit-non-zero-on-fix", "train.py", cwd=folder).returncode == 0
    assert (folder / "train.py").stat().st_mtime_ns == before.st_mtime_ns


def test_a_diff_writes_nothing_and_fails(folder: Path) -> None:
    found = run("--diff", "train.py", cwd=folder)
    assert (folder / "train.py").read_bytes() == BEFORE.encode()
    assert found.stdout.decode() == dedent(
        """\
        --- a/train.py
        +++ b/train.py
        @@ -5,5 +5,5 @@
         def train(dataset, model, device):
             loader = DataLoader(dataset, num_workers=4, pin_memory=True)  # größer
             for images, labels in loader:
        -        images = images.cuda()
        +        images = images.cuda(non_blocking=True)
                 model(images).sum().backward()
        """
    )
    assert found.returncode == 1


@pytest.mark.parametrize("encode", ["utf-8", "utf-8-sig", "latin-1", "crlf", "no-end"])
def test_bytes_around_an_edit_stay(tmp_path: Path, encode: str) -> None:
    def as_bytes(text: str) -> bytes:
        if encode == "crlf":
            return text.replace("\n", "\r\n").encode()
        if encode == "no-end":
            return text.rstrip("\n").encode()
        if encode == "latin-1":
            return ("# -*- coding: latin-1 -*-\n" + text).encode("latin-1")
        return text.encode(encode)

    (tmp_path / "train.py").write_bytes(as_bytes(BEFORE))
    run("--fix", "train.py", cwd=tmp_path)
    assert (tmp_path / "train.py").read_bytes() == as_bytes(AFTER)
    assert (tmp_path / "train.py").read_bytes().startswith(codecs.BOM_UTF8) == (encode == "utf-8-sig")


def test_mode_and_link_are_kept(folder: Path) -> None:
    real = folder / "real.py"
    (folder / "train.py").rename(real)
    real.chmod(0o750)
    (folder / "train.py").symlink_to("real.py")
    run("--fix", "train.py", cwd=folder)
    assert (folder / "train.py").is_symlink()
    assert real.read_bytes() == AFTER.encode()
    assert stat.S_IMODE(real.stat().st_mode) == 0o750


def test_hard_links_are_kept(folder: Path) -> None:
    (folder / "link.py").symlink_to("train.py")
    os.link(folder / "train.py", folder / "other.txt")
    run("--fix", "link.py", cwd=folder)
    assert os.path.samefile(folder / "train.py", folder / "other.txt")
    assert (folder / "other.txt").read_bytes() == AFTER.encode()
    assert sorted(os.listdir(folder)) == ["link.py", "other.txt", "train.py"]


def test_a_shorter_text_leaves_nothing_of_the_old_one_in_a_hard_link(folder: Path) -> None:
    os.link(folder / "train.py", folder / "other.py")
    assert Change(str(folder / "train.py"), "train.py", BEFORE.encode(), b"short\n").write() == ""
    assert (folder / "other.py").read_bytes() == b"short\n"


def test_two_names_of_a_file_are_changed_once(folder: Path) -> None:
    os.link(folder / "train.py", folder / "other.py")
    found = run("--fix", ".", cwd=folder)
    assert (found.returncode, found.stderr) == (0, b"")
    assert found.stdout.decode().splitlines()[-1:] == ["No findings in 2 files; 1 fixed."]
    assert (folder / "other.py").read_bytes() == (folder / "train.py").read_bytes() == AFTER.encode()


@pytest.mark.skipif(sys.platform == "win32", reason="nothing there limits the size of files")
def test_a_hard_link_that_cannot_be_written_keeps_its_text(folder: Path) -> None:
    os.link(folder / "train.py", folder / "other.py")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(BEFORE.encode()) + 3, limits[1]))
    try:
        problem = Change(str(folder / "train.py"), "train.py", BEFORE.encode(), AFTER.encode()).write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert problem == "cannot be written: File too large"
    assert (folder / "other.py").read_bytes() == BEFORE.encode()
    assert os.path.samefile(folder / "train.py", folder / "other.py")


def test_a_read_only_file_is_left_as_it_was(folder: Path) -> None:
    (folder / "other.py").write_bytes(BEFORE.encode())
    (folder / "train.py").chmod(0o444)
    found = run("--fix", ".", cwd=folder)
    assert (folder / "train.py").read_bytes() == BEFORE.encode()
    assert (folder / "other.py").read_bytes() == AFTER.encode()
    assert b"train.py: read-only: left as it is" in found.stdout + found.stderr
    assert found.returncode == 2


def test_a_file_that_changed_meanwhile_is_left_as_it_is(folder: Path) -> None:
    change = Change(str(folder / "train.py"), "train.py", b"another text", b"a third one")
    assert change.write() == "changed meanwhile: left as it is"
    assert (folder / "train.py").read_bytes() == BEFORE.encode()
    assert os.listdir(folder) == ["train.py"]


def test_a_file_that_does_not_parse_keeps_none_from_being_fixed(folder: Path) -> None:
    (folder / "broken.py").write_text("import torch\nfrom torch.utils.data import DataLoader\ndef (:\n")
    found = run("--fix", ".", cwd=folder)
    assert (folder / "train.py").read_bytes() == AFTER.encode()
    assert b"DLC001" in found.stdout
    assert found.returncode == 1


def test_a_file_and_a_link_to_it_are_changed_once(folder: Path) -> None:
    (folder / "a_link.py").symlink_to("train.py")
    found = run("--fix", ".", cwd=folder)
    assert (found.returncode, found.stderr) == (0, b"")
    assert found.stdout.decode().splitlines()[-1:] == ["No findings in 2 files; 1 fixed."]
    assert (folder / "a_link.py").is_symlink()
    assert (folder / "train.py").read_bytes() == AFTER.encode()


def test_what_could_not_be_written_is_still_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "other.py").write_bytes(BEFORE.encode())
    write = Change.write

    def fails(change: Change) -> str:
        return "cannot be written: no space left" if change.path == "other.py" else write(change)

    monkeypatch.setattr(Change, "write", fails)
    found = run("--fix", "--output-format", "concise", ".", cwd=folder)
    assert (folder / "train.py").read_bytes() == AFTER.encode()
    lines = found.stdout.decode().splitlines()
    assert lines[0].startswith("other.py:8:18: DLC101")
    assert lines[1:] == ["error: other.py: cannot be written: no space left", "Found 1 finding (1 warning); 1 fixed."]
    assert found.returncode == 2


def test_a_file_that_was_not_named_is_not_changed(folder: Path) -> None:
    texts = {
        "options.py": "WORKERS = 0\n",
        "load.py": dedent("""\
            import numpy as np
            from torch.utils.data import DataLoader, Dataset
            from options import WORKERS

            class Spectra(Dataset):
                def __init__(self, paths):
                    self.paths = paths

                def __getitem__(self, index):
                    return np.load(self.paths[index])

            def train(paths, net):
                for x in DataLoader(Spectra(paths), num_workers=WORKERS):
                    net(x).backward()
            """),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    told = run("--fix", "--unsafe-fixes", "load.py", cwd=folder).stdout.decode()
    assert "= not fixed: that would change options.py, which was not named" in told
    assert {name: (folder / name).read_text(encoding="utf-8") for name in texts} == texts
    run("--fix", "--unsafe-fixes", "load.py", "options.py", cwd=folder)
    assert (folder / "options.py").read_text(encoding="utf-8") == "WORKERS = 4\n"


def test_fix_only_reports_nothing(folder: Path) -> None:
    (folder / "train.py").write_text(BEFORE + "    for epoch in range(3):\n        next(iter(loader))\n")
    found = run("--fix-only", "train.py", cwd=folder)
    assert (found.returncode, found.stdout, found.stderr) == (0, b"", b"")
    assert "non_blocking" in (folder / "train.py").read_text()


def test_standard_input_comes_back_fixed(folder: Path) -> None:
    found = run("--fix", "--stdin-filename", "train.py", "-", cwd=folder, stdin=BEFORE.encode())
    assert found.stdout == AFTER.encode()
    assert b"1 fixed" in found.stderr
    assert (folder / "train.py").read_bytes() == BEFORE.encode()


def test_what_a_comment_silences_is_not_fixed(folder: Path) -> None:
    text = BEFORE.replace(".cuda()", ".cuda()  # dlcheck: ignore[DLC101] another stream copies")
    (folder / "train.py").write_text(text)
    run("--fix", "train.py", cwd=folder)
    assert (folder / "train.py").read_text() == text


def test_options_that_make_no_sense_are_refused(folder: Path) -> None:
    for words in (["--unsafe-fixes"], ["--fix", "--measure"], ["--fix", "--update-baseline", "--baseline", "b.json"]):
        found = run(*words, "train.py", cwd=folder)
        assert (found.returncode, found.stdout) == (2, b""), words
        assert b"Error: " in found.stderr


@pytest.mark.parametrize("form", ["json", "sarif", "github", "gitlab", "junit"])
def test_a_diff_is_no_report_for_machines(form: str, folder: Path) -> None:
    found = run("--diff", "--output-format", form, "train.py", cwd=folder)
    assert (found.returncode, found.stdout) == (2, b"")
    assert f"Error: --diff prints a diff, and no {form}: leave out --output-format {form}\n".encode() in found.stderr
    assert run("--diff", "--output-format", "concise", "train.py", cwd=folder).stdout.startswith(b"--- a/train.py")


def test_the_json_report_says_how_many_were_fixed(folder: Path) -> None:
    def summary(*words: str) -> dict[str, int]:
        found: dict[str, int] = json.loads(run("--output-format", "json", *words, "train.py", cwd=folder).stdout)[
            "summary"
        ]
        return found

    assert "fixed" not in summary()
    assert summary("--fix", "--unsafe-fixes")["fixed"] == 1
    assert summary("--fix")["fixed"] == 0


# Notebooks

CELLS = (
    ["%matplotlib inline\n", "import torch\n", "from torch.utils.data import DataLoader"],
    "loader = DataLoader(dataset, num_workers=4, pin_memory=True)\n",
    [
        "for images, labels in loader:\n",
        "    images = images.cuda()\n",
        "    model(images)  # \u00fc\n",
        "    !nvidia-smi",
    ],
)


def notebook(**how: object) -> str:
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["images.cuda()"]},
        *(
            {"cell_type": "code", "source": cell, "outputs": [{"text": "1e400 \u2028"}], "execution_count": None}
            for cell in CELLS
        ),
    ]
    return json.dumps({"cells": cells, "metadata": {"n": 1.10}, "nbformat": 4}, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "how",
    [{"indent": 1, "ensure_ascii": False}, {"ensure_ascii": True}, {"indent": 4}, {"separators": (",", ":")}],
    ids=str,
)
def test_only_the_cell_of_a_notebook_changes(tmp_path: Path, how: dict[str, object]) -> None:
    text = notebook(**how) + "\n"
    (tmp_path / "nb.ipynb").write_text(text, encoding="utf-8")
    run("--fix", "nb.ipynb", cwd=tmp_path)
    before, after = '    images = images.cuda()\\n"', '    images = images.cuda(non_blocking=True)\\n"'
    assert text.count(before) == 1
    assert (tmp_path / "nb.ipynb").read_text(encoding="utf-8") == text.replace(before, after)


def test_a_diff_goes_to_the_output_file(folder: Path) -> None:
    shown = run("--diff", "train.py", cwd=folder)
    found = run("--diff", "--output-file", "changes.diff", "train.py", cwd=folder)
    assert (found.returncode, found.stdout) == (shown.returncode, b"")
    assert (folder / "changes.diff").read_bytes() == shown.stdout


def test_the_diff_of_a_notebook_names_the_cell(tmp_path: Path) -> None:
    (tmp_path / "nb.ipynb").write_text(notebook(indent=1), encoding="utf-8")
    found = run("--diff", "--unsafe-fixes", "nb.ipynb", cwd=tmp_path)
    assert "--- a/nb.ipynb:cell 3\n" in found.stdout.decode()


# A fix that is wrong


def test_a_fix_that_breaks_its_file_is_told_and_the_others_are_applied() -> None:
    source = Source("a.py", "/a.py", "import torch\none(1)\ntwo(2)\n")

    def finding(code: str, start: int, end: int, replacement: str) -> Finding:
        edit = Edit(source.place(start, end), replacement)
        place = source.place(start, end)
        lines = (place.line, place.end_line)
        fix = Fix("safe", "change", (edit,))
        return Finding(code, "rule", "warning", "high", place, "message", fix=fix, statement_lines=lines)

    one, two = source.text.index("1"), source.text.index("2")
    findings = [finding("DLC101", one, one + 1, "a=1, a=2"), finding("DLC102", two, two + 1, "3")]

    def check(after: Mapping[str, bytes]) -> Report:
        left = [] if after else findings
        return Report(left, [], 1, {"a.py": source}, frozenset({"/a.py"}))

    found = fix(check, unsafe=False)
    (change,) = found.changes
    assert change.after == b"import torch\none(1)\ntwo(3)\n"
    assert found.applied == {"DLC102": 1}
    assert [(error.path, error.line) for error in found.errors] == [("a.py", 2)]
    assert "DLC101 would break the file" in found.errors[0].message


def test_a_refused_fix_does_not_end_the_rounds() -> None:
    source = Source("a.py", "/a.py", "import torch\none(1, 2)\n")
    at = source.text.index("1")

    def finding(code: str, start: int, replacement: str) -> Finding:
        place = source.place(start, start + 1)
        fix = Fix("safe", "change", (Edit(place, replacement),))
        lines = (place.line, place.end_line)
        return Finding(code, "rule", "warning", "high", place, "message", fix=fix, statement_lines=lines)

    findings = [finding("DLC101", at, "a=1, a=2"), finding("DLC102", at + 3, "3")]

    def check(after: Mapping[str, bytes]) -> Report:
        return Report([] if after else findings, [], 1, {"a.py": source}, frozenset({"/a.py"}))

    found = fix(check, unsafe=False)
    assert found.applied == {"DLC102": 1}
    assert len(found.errors) == 1
