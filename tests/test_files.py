"""Which files are found, and what is read of them."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlcheck import files, notebook
from dlcheck.config import Config
from dlcheck.files import UnusableError, finder
from dlcheck.files import workspace as workspaces
from dlcheck.files.finder import Finder
from dlcheck.files.workspace import Workspace
from dlcheck.gitignore import Patterns, anchored

GIT_ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(
        command, cwd=folder, env=GIT_ENVIRONMENT, capture_output=True, text=True, check=True, errors="surrogateescape"
    ).stdout


def plant(folder: Path, tree: dict[str, str]) -> None:
    for name, text in tree.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def found(folder: Path, *paths: str, config: Config | None = None) -> list[str]:
    config = config or Config(root=str(folder))
    named = Finder(lambda place: config.for_folder(place).exclude).named(
        [str(folder / path) for path in paths or ("",)]
    )
    return [os.path.relpath(one.file, folder) for one in named if not one.problem]


@pytest.fixture(params=["git", "walk"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of listing files: asking git, and reading .gitignore ourselves."""
    if request.param == "walk":
        monkeypatch.setattr(finder, "git_files", lambda _folder: None)
    return str(request.param)


IGNORING = {
    ".gitignore": "*.log.py\n/top.py\nsecret/\n!keep.py\ndocs/*.py\n**/deep/x.py\na/**/z.py\n\\#odd.py\ntrail.py   \n",
    "top.py": "",
    "sub/top.py": "",
    "x.log.py": "",
    "secret/a.py": "",
    "secret/keep.py": "",
    "docs/a.py": "",
    "docs/b/a.py": "",
    "deep/x.py": "",
    "q/deep/x.py": "",
    "a/z.py": "",
    "a/b/c/z.py": "",
    "#odd.py": "",
    "trail.py": "",
    "sub/.gitignore": "*.py\n!good.py\n",
    "sub/good.py": "",
    "sub/bad.py": "",
    "ok.py": "",
    "data.txt": "",
    "nb.ipynb": "{}",
}


def test_gitignore_is_respected(by: str, tmp_path: Path) -> None:
    plant(tmp_path, IGNORING)
    git(tmp_path, "init", "-q")
    assert found(tmp_path) == ["docs/b/a.py", "nb.ipynb", "ok.py", "sub/good.py"]


def test_gitignore_counts_outside_of_a_repository(tmp_path: Path) -> None:
    plant(tmp_path, IGNORING)
    assert found(tmp_path) == ["docs/b/a.py", "nb.ipynb", "ok.py", "sub/good.py"]


def test_gitignore_of_folders_above_counts(by: str, tmp_path: Path) -> None:
    plant(tmp_path, {".gitignore": "gen.py\n/sub/only.py\n", "sub/gen.py": "", "sub/only.py": "", "sub/a.py": ""})
    git(tmp_path, "init", "-q")
    assert found(tmp_path, "sub") == ["sub/a.py"]


def test_info_exclude_counts(by: str, tmp_path: Path) -> None:
    plant(tmp_path, {"mine.py": "", "a.py": ""})
    git(tmp_path, "init", "-q")
    plant(tmp_path, {".git/info/exclude": "mine.py\n"})
    assert found(tmp_path) == ["a.py"]


def test_tracked_files_count_although_ignored(tmp_path: Path) -> None:
    plant(tmp_path, {"kept.py": ""})
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "kept.py")
    plant(tmp_path, {".gitignore": "kept.py\n"})
    assert found(tmp_path) == ["kept.py"]


def test_what_is_named_is_taken(by: str, tmp_path: Path) -> None:
    plant(tmp_path, {".gitignore": "out/\nx.py\n", "out/a.py": "", "x.py": "", "build/b.py": "", "script": ""})
    git(tmp_path, "init", "-q")
    assert found(tmp_path, "out", "x.py", "build", "script") == ["build/b.py", "out/a.py", "script", "x.py"]
    assert found(tmp_path) == []


def test_deleted_tracked_file_is_not_listed(tmp_path: Path) -> None:
    plant(tmp_path, {"a.py": "", "b.py": ""})
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    (tmp_path / "b.py").unlink()
    assert found(tmp_path) == ["a.py"]


def test_repositories_inside_are_entered(by: str, tmp_path: Path) -> None:
    plant(tmp_path, {"a.py": "", "inner/b.py": "", "inner/sub/c.py": ""})
    git(tmp_path, "init", "-q")
    git(tmp_path / "inner", "init", "-q")
    assert found(tmp_path) == ["a.py", "inner/b.py", "inner/sub/c.py"]


def test_submodules_are_entered(tmp_path: Path) -> None:
    plant(tmp_path, {"module/m.py": "", "top/a.py": ""})
    git(tmp_path / "module", "init", "-q")
    git(tmp_path / "module", "add", ".")
    git(tmp_path / "module", "commit", "-qm", "m")
    git(tmp_path / "top", "init", "-q")
    git(tmp_path / "top", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(tmp_path / "module"))
    assert found(tmp_path / "top") == ["a.py", "module/m.py"]


def test_git_of_a_hook_does_not_mislead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, {"here/a.py": "", "other/b.py": ""})
    git(tmp_path / "here", "init", "-q")
    git(tmp_path / "other", "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "other"))
    assert found(tmp_path / "here") == ["a.py"]


def test_without_git_the_patterns_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, IGNORING)
    git(tmp_path, "init", "-q")
    monkeypatch.setenv("PATH", "")
    assert found(tmp_path) == ["docs/b/a.py", "nb.ipynb", "ok.py", "sub/good.py"]


def test_default_excludes(by: str, tmp_path: Path) -> None:
    plant(tmp_path, {f"{folder}/a.py": "" for folder in (".venv", "venv", "node_modules", "build", "x/site-packages")})
    plant(tmp_path, {"src/a.py": "", "vendor/b.py": ""})
    git(tmp_path, "init", "-q")
    assert found(tmp_path) == ["src/a.py", "vendor/b.py"]


def test_default_excludes_are_about_what_lies_below(tmp_path: Path) -> None:
    plant(tmp_path, {"build/project/a.py": ""})
    assert found(tmp_path / "build" / "project") == ["a.py"]


def test_excludes_of_the_configuration(by: str, tmp_path: Path) -> None:
    plant(tmp_path, {"gen/a.py": "", "src/gen/b.py": "", "src/c_pb2.py": "", "src/d.py": "", "venv/e.py": ""})
    git(tmp_path, "init", "-q")
    config = Config(root=str(tmp_path), settings={"extend-exclude": ["/gen", "*_pb2.py"]})
    assert found(tmp_path, config=config) == ["src/d.py", "src/gen/b.py"]
    config = Config(root=str(tmp_path), settings={"exclude": ["src/gen"]})
    assert found(tmp_path, config=config) == ["gen/a.py", "src/c_pb2.py", "src/d.py", "venv/e.py"]


def test_links(by: str, tmp_path: Path) -> None:
    plant(tmp_path, {"src/a.py": ""})
    git(tmp_path, "init", "-q")
    (tmp_path / "src" / "loop").symlink_to(tmp_path)
    (tmp_path / "src" / "again.py").symlink_to("a.py")
    (tmp_path / "src" / "dangling.py").symlink_to("nowhere.py")
    (tmp_path / "src" / "round.py").symlink_to("round.py")
    assert found(tmp_path) == ["src/a.py", "src/again.py"]
    # A folder that is named may be a link.
    assert found(tmp_path, "src/loop/src") == ["src/loop/src/a.py", "src/loop/src/again.py"]


def test_odd_things_are_passed_over_in_folders(by: str, tmp_path: Path) -> None:
    plant(tmp_path, {"dir.py/inner.py": "", "a.py": ""})
    git(tmp_path, "init", "-q")
    os.mkfifo(tmp_path / "fifo.py")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / "socket.py"))
    assert found(tmp_path) == ["a.py", "dir.py/inner.py"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fifo.py", "a named pipe"),
        ("missing.py", "No such file"),
        ("round.py", "symbolic links"),
        ("a\0b", "null"),
    ],
)
def test_odd_things_that_are_named_are_told(name: str, words: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.py")
    (tmp_path / "round.py").symlink_to("round.py")
    with pytest.raises(UnusableError, match=words):
        files.read(str(tmp_path / name))


def test_devices_are_not_read() -> None:
    with pytest.raises(UnusableError, match="a device"):
        files.read("/dev/zero")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission_is_told(tmp_path: Path) -> None:
    plant(tmp_path, {"locked/a.py": "", "b.py": ""})
    (tmp_path / "b.py").chmod(0)
    (tmp_path / "locked").chmod(0)
    try:
        with pytest.raises(UnusableError, match="Permission denied"):
            files.read(str(tmp_path / "b.py"))
        named = Finder(lambda _folder: Patterns("", ())).named([str(tmp_path)])
        assert [(one.file, one.problem) for one in named if one.problem] == [
            (str(tmp_path / "locked"), "Permission denied")
        ]
    finally:
        (tmp_path / "locked").chmod(0o700)


def test_names_that_are_no_text(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.py")
    try:
        (tmp_path / name).write_text("")
    except OSError:
        pytest.skip("the file system takes no such name")
    git(tmp_path, "init", "-q")
    assert found(tmp_path) == [name]


# Our reading of .gitignore is git's.

NAMES = st.text("ab.", min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))
PATTERN = st.lists(
    st.sampled_from(
        ["a", "b", ".", "*", "**", "?", "/", "[ab]", "[!a]", "[^b]", "\\a", "!", "#", " ", "[a", "[a-b]", "]"]
    ),
    min_size=1,
    max_size=5,
).map("".join)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    patterns=st.lists(PATTERN, min_size=1, max_size=4),
    paths=st.lists(st.lists(NAMES, min_size=1, max_size=3), max_size=8),
)
def test_patterns_mean_what_git_says(patterns: list[str], paths: list[list[str]], tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / ".gitignore").write_text("\n".join(patterns) + "\n")
    for parts in paths:
        file = folder.joinpath(*parts[:-1], parts[-1] + ".py")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("")
        except OSError:  # a file where a folder should be
            continue
    git(folder, "init", "-q")
    told = git(folder, "ls-files", "-co", "--exclude-standard", "-z").split("\0")
    wanted = sorted(name for name in told if name.endswith(".py"))
    walked = Finder(lambda _folder: Patterns("", ()))._walk(str(folder), None)
    ours = sorted(os.path.relpath(one.file, folder) for one in walked if "/.git/" not in one.file)
    assert ours == wanted


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("a.py", "/r/x/a.py", True),
        ("/a.py", "/r/x/a.py", None),
        ("x/*.py", "/r/x/a.py", True),
        ("x/*.py", "/r/y/x/a.py", None),
        ("**/x/*.py", "/r/y/x/a.py", True),
        ("!a.py", "/r/a.py", False),
        ("[[:digit:]].py", "/r/1.py", True),
        ("[[:digit:]].py", "/r/a.py", None),
        ("[z-a].py", "/r/b.py", None),
        ("a\\", "/r/a", None),
        ("\\!a.py", "/r/!a.py", True),
        ("", "/r/a", None),
        ("/", "/r/a", None),
    ],
)
def test_patterns(pattern: str, path: str, expected: bool | None) -> None:
    assert Patterns("/r", [pattern]).match(path, False) is expected


def test_patterns_are_anchored_to_their_folder() -> None:
    assert anchored("*.py", "/r") == "*.py"
    assert anchored("gen/", "/r") == "gen/"
    assert anchored("src/gen", "/r") == "/r/src/gen"
    assert anchored("./src/gen", "/r") == "/r/src/gen"
    assert anchored("/src", "/r[1]") == "/r\\[1\\]/src"
    assert anchored("/r/src", "/r") == "/r/src"
    assert anchored("!src/gen", "/r") == "!/r/src/gen"


# Text


@pytest.mark.parametrize(
    ("data", "text", "encoding"),
    [
        (b"x = 1\n", "x = 1\n", "utf-8"),
        ("é = 1\n".encode(), "é = 1\n", "utf-8"),
        ("# -*- coding: latin-1 -*-\né\n".encode("latin-1"), "# -*- coding: latin-1 -*-\né\n", "iso8859-1"),
        ("#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\n€".encode("cp1252"), None, "cp1252"),
        ("# coding: gbk\r\n中\r\n".encode("gbk"), "# coding: gbk\r\n中\r\n", "gbk"),
        (b"x = 1\n# coding: nonsense\n", "x = 1\n# coding: nonsense\n", "utf-8"),
        (b"", "", "utf-8"),
        (b"a\r\nb\rc\n", "a\r\nb\rc\n", "utf-8"),
    ],
)
def test_decoding(data: bytes, text: str | None, encoding: str) -> None:
    decoded, name, bom = files.decode(data)
    assert name == encoding
    assert not bom
    assert decoded == (text if text is not None else data.decode(encoding))


def test_byte_order_mark() -> None:
    assert files.decode(b"\xef\xbb\xbfx = 1\n") == ("x = 1\n", "utf-8", True)
    assert files.decode(b"\xef\xbb\xbf# coding: utf8\n")[1:] == ("utf-8", True)


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        ("x = 1\n".encode("utf-16"), 1, "UTF-16"),
        ("x = 1\n".encode("utf-16-be"), 1, "NUL"),
        (b"a\nb\n\xff\n", 3, "not utf-8"),
        (b"# coding: nonsense\n", 1, "unknown"),
        (b"#!python\n# coding: rot13\n", 2, "unknown"),
        (b"\xef\xbb\xbf# coding: latin-1\n", 1, "byte-order mark"),
        (b"a\nb\0\n", 2, "NUL"),
        (b"# coding: utf-8\n\xe9\n", 2, "not utf-8"),
    ],
)
def test_what_cannot_be_decoded(data: bytes, line: int, words: str) -> None:
    with pytest.raises(UnusableError, match=words) as caught:
        files.decode(data)
    assert caught.value.line == line


@given(st.binary(max_size=200))
def test_decoding_fails_in_one_way_only(data: bytes) -> None:
    with contextlib.suppress(UnusableError):
        files.decode(data)


def test_prefilter() -> None:
    assert files.may_matter(b"from torch.utils.data import DataLoader\n")
    assert files.may_matter(b"import torch\ndef f(x): return x.cuda()\n")
    assert not files.may_matter(b"import torch\n")
    assert not files.may_matter(b"class Dataset: pass\n")


# Notebooks


def cells(*sources: str | list[str], **metadata: object) -> str:
    rows: list[dict[str, object]] = [{"cell_type": "markdown", "source": "# Title"}]
    rows += [{"cell_type": "code", "source": source} for source in sources]
    return json.dumps({"cells": rows, "metadata": metadata, "nbformat": 4})


def test_cells_become_a_module() -> None:
    source = files.to_source("/p/nb.ipynb", cells("import torch\n", ["x = 1\n", "y = 2"], "z = 3").encode())
    assert source.text == "import torch\nx = 1\ny = 2\nz = 3\n"
    assert [(cell.number, cell.first_line) for cell in source.cells] == [(1, 0), (2, 1), (3, 3)]
    place = source.place(source.text.index("y"), source.text.index("y") + 1)
    assert (place.cell, place.line, place.column) == (2, 2, 1)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("%matplotlib inline\nx = 1", "pass  # %matplotlib inline\nx = 1\n"),
        ("!pip install torch\n", "pass  # !pip install torch\n"),
        ("if gpu:\n    !nvidia-smi\n", "if gpu:\n    pass  # !nvidia-smi\n"),
        ("torch.nn?\n", "pass  # torch.nn?\n"),
        ("names = !ls *.jpg\n", "names = get_ipython()  # !ls *.jpg\n"),
        ("out[1]: list = %store x\n", "out[1]: list = get_ipython()  # %store x\n"),
        ("x??\n?x\n??x.y\n", "pass  # x??\npass  # ?x\npass  # ??x.y\n"),
        ("import os; os?\n", "pass  # import os; os?\n"),  # IPython asks, and imports nothing
        ("x[0]?\n*int*?\n%time?\n", "pass  # x[0]?\npass  # *int*?\npass  # %time?\n"),
        ("for x in y:\n  x?\n", "for x in y:\n  pass  # x?\n"),
        ("/f 1\n,f a b\n;f a\n", "pass  # /f 1\npass  # ,f a b\npass  # ;f a\n"),
        ("x?\ny = 1  # why?\n# why?\n", "pass  # x?\ny = 1  # why?\n# why?\n"),
        ("x?\ns = '''why?\n'''\nf('a?')\n", "pass  # x?\ns = '''why?\n'''\nf('a?')\n"),
        ("%%time?\nno Python\n", "\n\n"),
        ("!pip install \\\n  torch\nx = 1\n", "pass  # !pip install \\\n#  torch\nx = 1\n"),
        ("x = (a\n  % b)\n", "x = (a\n  % b)\n"),
        ("!ls\nx = (a\n  % b)\ns = '''\n%no\n'''\n", "pass  # !ls\nx = (a\n  % b)\ns = '''\n%no\n'''\n"),
        ("!ls\nx = a \\\n  % b\n", "pass  # !ls\nx = a \\\n  % b\n"),
        ("!ls\r\nx = (a\r\n  % b)\r\n", "pass  # !ls\r\nx = (a\r\n  % b)\r\n"),
        ("!ls\rx = (a\r  % b)\r", "pass  # !ls\rx = (a\r  % b)\r\n"),
        ("!ls\ns = 'a\\\r\n%no'\nt = 'b\x0c%b'\n", "pass  # !ls\ns = 'a\\\r\n%no'\nt = 'b\x0c%b'\n"),
        ("%%time\nx = 1\n", "pass  # %%time\nx = 1\n"),
        ("%%bash\nls -l\necho\n", "\n\n\n"),
        ("%%html\n<p>", "\n\n"),
        ("await f()\n", "await f()\n"),
        ("", "\n"),
    ],
)
def test_magics(code: str, expected: str) -> None:
    text, _, _, left_out = notebook.to_module(cells(code))
    assert text == expected
    assert not left_out
    compile("async def f():\n" + "".join(f" {line}" for line in text.splitlines(True)) + "\n pass\n", "nb", "exec")


@pytest.mark.parametrize(
    ("code", "bound"),
    [
        ("a = f(b, c=1", "a"),
        ("a = b.c[d] = (", "a b"),
        ("a, (b, *c) = f(", "a b c"),
        ("a: int = (", "a"),
        ("a += (", "a"),
        ("for a, b in (", "a b"),
        ("from x import (a, b as c", "a b c"),
        ("import a.b, c +", "a c"),
        ("with f() as a, g( as b:", "a b"),
        ("def a(b:\n    return b", "a"),
        ("class a(b:", "a"),
        ("if (a := f(:", "a"),
        ("a.b.update({", "a"),
        ("if x: a = (", "a"),
        ("print('a = 1', b == c, d >= e", ""),
        ("(  # a = 1", ""),
    ],
)
def test_what_a_broken_cell_may_bind_is_unknown(code: str, bound: str) -> None:
    text, _, texts, left_out = notebook.to_module(cells(code))
    assert texts == (f"{code}\n",)
    assert [one.number for one in left_out] == [1]
    assert text.strip() == ("; ".join(f"{name} = get_ipython()" for name in bound.split()) or "pass")


def test_of_a_broken_cell_what_parses_stays() -> None:
    code = "import torch\n\n@f\ndef g():\n    return (\n\nif a:\n    b = 1\nelse:\n    b = 2\nc = [\n]\nd = 1 +\n"
    text, _, _, (one,) = notebook.to_module(cells(code))
    expected = (
        "import torch\n\ng = get_ipython()\n\n\n\nif a:\n    b = 1\nelse:\n    b = 2\nc = [\n]\nd = get_ipython()\n"
    )
    assert text == expected
    assert one.line in (5, 13)


def test_a_line_end_does_not_span_two_cells() -> None:
    text, found_cells, *_ = notebook.to_module(cells("x = 1\r", "\ny = 2", "\r%%bash", "z = 3"))
    assert text == "x = 1\r\n\ny = 2\n\n\nz = 3\n"
    assert [cell.first_line for cell in found_cells] == [0, 1, 3, 5]


def test_old_notebooks() -> None:
    old = json.dumps({"worksheets": [{"cells": [{"cell_type": "code", "input": ["x = 1\n"]}]}], "nbformat": 3})
    assert notebook.to_module(old)[0] == "x = 1\n"


def test_notebooks_of_other_languages_are_empty() -> None:
    assert notebook.to_module(cells("x <- 1", kernelspec={"language": "R", "name": "ir"})) == ("", (), (), ())
    assert notebook.to_module(cells("x = 1", language_info={"name": "python"}))[0] == "x = 1\n"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cells": 1}', '{"cells": [', "[" * 100_000])
def test_what_is_no_notebook(text: str) -> None:
    with pytest.raises(UnusableError, match="not a notebook"):
        files.to_source("/p/nb.ipynb", text.encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["cells", "cell_type", "source", "input", "metadata", "worksheets"]), inner)
    ),
)


@given(JSON)
def test_any_json_is_a_notebook_or_is_told(document: object) -> None:
    with contextlib.suppress(notebook.NotebookError):
        notebook.to_module(json.dumps(document))


@given(st.lists(st.text("ab%!?=()[]{}'\"\\#\n \r", max_size=30), max_size=4))
def test_cells_keep_their_lines(sources: list[str]) -> None:
    text, found_cells, texts, _ = notebook.to_module(cells(*sources))
    assert len(found_cells) == len(sources)
    assert [one.removesuffix("\n") for one in texts] == [one.removesuffix("\n") for one in sources]
    compile(text, "nb", "exec", ast.PyCF_ONLY_AST)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for cell, source in zip(found_cells, sources, strict=True):
        for number, line in enumerate(source.replace("\r\n", "\n").replace("\r", "\n").split("\n")):
            kept = lines[cell.first_line + number] if cell.first_line + number < len(lines) else ""
            assert line in kept or kept == "" or kept.strip().startswith(("#", "pass")) or "get_ipython()" in kept


# A project


def workspace(root: Path, **overlays: tuple[str, bytes]) -> Workspace:
    config = Config(root=str(root))
    return Workspace(str(root), Finder(lambda _folder: config.exclude), overlays)


def test_workspace(tmp_path: Path) -> None:
    plant(
        tmp_path, {"a.py": "needle", "sub/b.py": "hay", "nb.ipynb": "{}", "pyproject.toml": "", "venv/c.py": "needle"}
    )
    project = workspace(tmp_path)
    a, b = str(tmp_path / "a.py"), str(tmp_path / "sub" / "b.py")
    assert list(project.files()) == [a, b]
    assert project.mentions([b"needle", b"other"]) == [a]
    assert project.read(a) == b"needle"
    assert project.exists(a)
    assert not project.exists(str(tmp_path / "sub"))
    assert project.read(str(tmp_path / "none.py")) is None
    assert project.source(str(tmp_path / "none.py")) is None
    source = project.source(b)
    assert source is not None
    assert source.text == "hay"
    assert project.source(b) is source
    assert [one.file for one in project.sources()] == [b]


def test_overlays_stand_before_files(tmp_path: Path) -> None:
    plant(tmp_path, {"a.py": "old", "pyproject.toml": ""})
    a, new = str(tmp_path / "a.py"), str(tmp_path / "new.py")
    project = workspace(tmp_path, **{a: ("a.py", b"text"), new: ("-", b"fresh")})
    assert list(project.files()) == [a, new]
    assert project.mentions([b"fresh"]) == [new]
    source = project.source(new)
    assert source is not None
    assert (source.path, source.text) == ("-", "fresh")


def test_root(tmp_path: Path) -> None:
    plant(tmp_path, {"pyproject.toml": "", "src/pkg/a.py": "", "inner/setup.py": "", "inner/b.py": ""})
    assert files.root_of(str(tmp_path / "src" / "pkg")) == str(tmp_path)
    assert files.root_of(str(tmp_path / "inner")) == str(tmp_path / "inner")


def test_large_projects_are_searched_near_the_top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, {"z.py": "", "a/b/c.py": "", "a/d.py": "", "pyproject.toml": ""})
    monkeypatch.setattr(workspaces, "SEARCH_FILES", 2)
    assert list(workspace(tmp_path).files()) == [str(tmp_path / "a" / "d.py"), str(tmp_path / "z.py")]
