"""Fuzzing: sources, settings, comments, baselines, caches, rule pages and messages of editors that nobody has written.

Short tiers run by default, with the same inputs each time; `-m long` runs the same for longer, with others each time
(`DLCHECK_FUZZ` is how many inputs each gets), and prints how many it tried.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import sources
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlcheck import cli, extra, pages
from dlcheck.config import KEYS

ROOT = Path(__file__).resolve().parents[2]
LONG = int(os.environ.get("DLCHECK_FUZZ", "2000"))

Test = Callable[..., None]


def fuzz(strategy: st.SearchStrategy[Any], short: int) -> Callable[[Callable[[Any], None]], tuple[Test, Test]]:
    """The same property twice: with few inputs, which are the same each time, and with many."""

    def both(property_: Callable[[Any], None]) -> tuple[Test, Test]:
        checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
        tried = [0]

        def few(one: Any) -> None:
            property_(one)

        def many(one: Any) -> None:
            tried[0] += 1
            property_(one)

        quick = settings(
            max_examples=short, deadline=None, derandomize=True, database=None, suppress_health_check=checks
        )
        long = settings(max_examples=LONG, deadline=None, database=None, suppress_health_check=checks)
        wrapped = long(given(strategy)(many))

        def counted() -> None:
            wrapped()
            print(f"{property_.__name__}: {tried[0]} inputs")

        return quick(given(strategy)(few)), pytest.mark.long(counted)

    return both


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of `dlcheck`, in this process."""
    before, out, err = sys.argv, io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace"), io.StringIO()
    sys.argv = ["dlcheck", *words]
    here = os.getcwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = cli._status()
    finally:
        os.chdir(here)
        sys.argv = before
        gc.enable()  # a run has no use for it, and this process goes on
    out.flush()
    shown = out.buffer.getvalue().decode()
    assert "internal error" not in shown + err.getvalue(), shown[-2000:] + err.getvalue()
    return status, shown, err.getvalue()


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dlcheck-fuzz-") as name:
        (Path(name) / "pyproject.toml").touch()
        yield Path(name)


# Sources: of the rules' own pages, in which words, lines and characters are moved about, and of a small grammar.

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SEEDS = sorted({
    block for page in (ROOT / "rules").glob("DLC*.md") for block in _BLOCK.findall(page.read_text(encoding="utf-8"))
    if len(block) < 2500
})  # fmt: skip
WORDS = sorted({word for seed in SEEDS for word in re.findall(r"\w+|[^\w\s]+", seed)})
ODD = ["\0", "\r", "\x0c", "\\\n", "\ud800", "\u2028", "\ufeff", "'''", '"', "#", "\t", "  ", "(", "]", "9" * 5000, "é"]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(SEEDS))
    if draw(st.booleans()):
        text += draw(st.sampled_from(SEEDS))
    parts = re.findall(r"\w+|[^\w\s]|\s+", text)
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(parts) - 1))
        other = draw(st.integers(0, len(parts) - 1))
        kind = draw(st.integers(0, 6))
        if kind == 0:
            del parts[at : at + draw(st.integers(1, 5))]
            parts = parts or ["\n"]
        elif kind == 1:
            parts[at] = draw(st.sampled_from(WORDS))
        elif kind == 2:
            parts[at], parts[other] = parts[other], parts[at]
        elif kind == 3:
            parts[at:at] = parts[other : other + draw(st.integers(1, 30))]
        elif kind == 4:
            parts.insert(at, draw(st.sampled_from(ODD)))
        elif kind == 5:
            parts[at:at] = [draw(st.text(max_size=4))]
        else:  # a name becomes another one everywhere
            old, new = parts[at], draw(st.sampled_from(WORDS))
            parts = [new if part == old else part for part in parts]
    return "".join(parts)


_NAME = st.sampled_from(["ds", "loader", "a", "kw", "batch", "self.x", "f", "Data", "torch", "DataLoader"])
_CONSTANT = st.sampled_from(
    ["0", "1", "-1", "4", "True", "None", "'cuda'", "'a'", "1.5", "10**9", "b''", "...", "[]", "{}"]
)
_OPERATOR = st.sampled_from(["+", "*", "//", "%", "<<", "or", "in", "is", "@"])
_TARGET = st.sampled_from(["ds", "loader", "a", "kw", "a, b", "self.x", "a[0]"])
EXPRESSIONS = st.recursive(
    _NAME | _CONSTANT,
    lambda inner: st.one_of(
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("{}({}, num_workers={}, **{})".format, _NAME, inner, inner, inner),
        st.builds("DataLoader({}, {}={}, pin_memory={})".format, inner, st.sampled_from(
            ["batch_size", "num_workers", "prefetch_factor", "shuffle", "sampler", "collate_fn", "persistent_workers"]
        ), inner, inner),
        st.builds("[{} for {} in {} if {}]".format, inner, st.sampled_from(["a", "b, c", "*d, e"]), inner, inner),
        st.builds("{{'num_workers': {}, **{}, {}: {}}}".format, inner, inner, inner, inner),
        st.builds("(lambda a, *b, c={}, **d: {})".format, inner, inner),
        st.builds("{}.{}({})".format, inner, st.sampled_from(["to", "cuda", "get", "update", "map", "item"]), inner),
        st.builds("{}[{}:{}]".format, inner, inner, inner),
        st.builds("({} {} {})".format, inner, _OPERATOR, inner),
        st.builds("f'{{{}!r:>{{{}}}}}'".format, _NAME, _NAME),
        st.builds("(a := {})".format, inner),
    ),
    max_leaves=12,
)  # fmt: skip


def _block(head: str, body: str) -> str:
    return head + "\n" + "\n".join(f"    {line}" for line in body.splitlines())


STATEMENTS = st.recursive(
    st.one_of(
        st.builds("{} = {}".format, _TARGET, EXPRESSIONS),
        st.builds("{} += {}".format, st.sampled_from(["a", "kw", "self.x"]), EXPRESSIONS),
        EXPRESSIONS,
        st.builds("return {}".format, EXPRESSIONS),
        st.sampled_from(["pass", "break", "from . import a", "import a as loader", "global a", "del kw", "yield a"]),
    ),
    lambda inner: st.one_of(
        st.builds("{}\n{}".format, inner, inner),
        st.builds(_block, st.builds("for {} in {}:".format, _TARGET, EXPRESSIONS), inner),
        st.builds(_block, st.builds("if {}:".format, EXPRESSIONS), inner),
        st.builds(_block, st.builds("with {} as a:".format, EXPRESSIONS), inner),
        st.builds(_block, st.builds("def {}(self, a, kw={}):".format, st.sampled_from(
            ["f", "__getitem__", "__init__", "__iter__", "collate_fn", "main"]), EXPRESSIONS), inner),
        st.builds(_block, st.builds("class {}({}):".format, st.sampled_from(["Data", "A"]), st.sampled_from(
            ["Dataset", "IterableDataset", "A", "Data", "DataLoader", "nn.Module", "*a", "metaclass=A"])), inner),
        st.builds(_block, st.just("try:"), inner.map(lambda body: body + "\nfinally: pass")).map(
            lambda text: text.replace("    finally: pass", "finally: pass")
        ),
        st.builds(_block, st.just("while a:"), inner),
    ),
    max_leaves=10,
)  # fmt: skip
IMPORTS = "from torch.utils.data import DataLoader, Dataset, IterableDataset\nimport torch\nfrom torch import nn\n"
PROGRAMS = STATEMENTS.map(lambda body: IMPORTS + body + "\n")


def checked(text: str, *words: str) -> None:
    """Checked, fixed and checked again: what was Python before is so after; silence and findings, and no fault."""
    with folder() as here:
        file = here / "odd.py"
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        status, out, err = run(here, "check", "--no-cache", "--output-format", "json", *words, ".")
        assert (status in (0, 1), err) == (True, ""), err
        before = {one["code"] for one in json.loads(out)["findings"]}
        status, out, err = run(
            here, "check", "--no-cache", "--fix", "--unsafe-fixes", "--output-format", "json", *words, "."
        )
        after = json.loads(out)
        assert (status in (0, 1), err, after["errors"]) == (True, "", []), (err, after["errors"])
        assert ("DLC001" in {one["code"] for one in after["findings"]}) == ("DLC001" in before)


@fuzz(mutated(), 40)
def mutated_sources(text: str) -> None:
    checked(text, "--select", "ALL")


@fuzz(PROGRAMS, 30)
def programs(text: str) -> None:
    checked(text, "--select", "ALL", "--min-confidence", "low")


# Comments.

_CODES = st.sampled_from(
    ["DLC101", "DLC202", "dlc101", "DLC", "ALL", "", "é", "blocking-transfer-of-pinned-batch", "]", "["]
)
COMMENTS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["# dlcheck:", "#dlcheck:", "# dlcheck", "# noqa:", "# NoQA", "# type: ignore # dlcheck:", "#"]),
    st.sampled_from([" ignore[", " file-ignore[", " ignore", "ignore [", " ignore[[", " ", "[", " ignore]"]),
    st.lists(_CODES, max_size=4).map(",".join),
    st.sampled_from(["]", "] why", "]]", "", "] # dlcheck: ignore[DLC202]", "]\r", "]\x0c", "] \ud800", "]'", '] """']),
)


@fuzz(st.lists(st.tuples(st.integers(0, 12), st.booleans(), COMMENTS), max_size=5), 25)
def comments(placed: list[tuple[int, bool, str]]) -> None:
    lines = sources.GOOD.split("\n")
    for at, alone, comment in placed:
        line = at % len(lines)
        if alone:
            lines.insert(line, comment)
        else:
            lines[line] += f"  {comment}"
    checked("\n".join(lines), "--select", "ALL")


# Settings.

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(max_size=8)
    | st.sampled_from(["ALL", "DLC1", "DLC101", "DLC999", "high", "json", "**", "[", "a\0b", "..", "3.12", ">=2"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
_KEYS = st.sampled_from([*KEYS, "rules", "nonsense", "selct", ""]) | st.text(max_size=6)


def toml(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value).replace("\\ud", "\\\\ud").replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{toml(key)} = {toml(item)}' for key, item in value.items())}}}"
    return repr(value)


TABLES = st.dictionaries(_KEYS, _VALUES, max_size=4).map(
    lambda table: "".join(f"{toml(key)} = {toml(value)}\n" for key, value in table.items())
)
# Never `extra-rules`, `baseline` or the like with a path of this machine: those are names, and lead nowhere here.
CONFIGURATIONS = st.one_of(
    TABLES.map(lambda text: ("dlcheck.toml", text)),
    TABLES.map(lambda text: ("pyproject.toml", f"[tool.dlcheck]\n{text}")),
    TABLES.map(lambda text: ("pyproject.toml", f"[project]\n{text}[tool.dlcheck]\n")),
    st.tuples(st.sampled_from(["dlcheck.toml", "pyproject.toml"]), st.text(max_size=60)),
    st.tuples(st.sampled_from(["setup.cfg", "requirements.txt", "setup.py", ".gitignore"]), st.text(max_size=60)),
)


@fuzz(CONFIGURATIONS, 40)
def configurations(given_: tuple[str, str]) -> None:
    name, text = given_
    with folder() as here:
        (here / name).write_bytes(text.encode("utf-8", "surrogatepass"))
        (here / "good.py").write_text(sources.GOOD, encoding="utf-8")
        for words in (
            ("check", "--no-cache", "--output-format", "json"),
            ("config",),
            ("config", "--output-format", "json"),
        ):
            status, _, err = run(here, *words, *(["."] if words[0] == "check" else []))
            assert status in (0, 1, 2)
            assert status != 2 or words[0] == "check" or err.startswith("dlcheck: error: ")
            assert all(line.startswith("dlcheck: ") for line in err.splitlines())


# JSON that is ours: a baseline, an entry of the cache, a measurement's record.

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to all parts of a document."""
    yield way
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*way, key))


def with_part(document: Any, way: Sequence[Any], part: Any) -> Any:
    if not way:
        return part
    key, *rest = way
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[key] = with_part(copy[key], rest, part)
    return copy


def damaged(draw: st.DrawFn, text: str) -> bytes:
    """A document of which a part is another one, or some bytes are."""
    document = json.loads(text)
    for _ in range(draw(st.integers(1, 2))):
        ways = list(places(document))
        document = with_part(document, ways[draw(st.integers(0, len(ways) - 1))], draw(JSON))
    data = json.dumps(document).encode()
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=4)) + data[at + draw(st.integers(0, 9)) :]
    return data


@fuzz(st.data(), 20)
def baselines(data: Any) -> None:
    with folder() as here:
        (here / "good.py").write_text(sources.GOOD, encoding="utf-8")
        run(here, "baseline")
        file = here / ".dlcheck-baseline.json"
        file.write_bytes(data.draw(st.composite(lambda draw: damaged(draw, file.read_text(encoding="utf-8")))()))
        before = file.read_bytes()
        words = ("check", "--no-cache", "--baseline", file.name, "--output-format", "json", ".")
        status, out, _ = run(here, *words)
        assert status in (0, 1, 2)
        assert (status == 2) == bool(json.loads(out)["errors"])
        for more in ("--update-baseline", "--prune-baseline"):
            changed, _, _ = run(here, *words, more)
            if status == 2:  # what is no baseline may be anything: it is not written over
                assert (changed, file.read_bytes()) == (2, before)


FORMATS = ("full", "json", "sarif", "github", "junit")


@fuzz(st.data(), 20)
def caches(data: Any) -> None:
    with folder() as here:
        (here / "good.py").write_text(sources.GOOD, encoding="utf-8")
        words = (
            "check",
            "--output-format",
            data.draw(st.sampled_from(["full", "json", "sarif", "github", "junit"])),
            ".",
        )
        run(here, *words)
        (entry,) = (here / ".dlcheck_cache").glob("*.json")
        entry.write_bytes(data.draw(st.composite(lambda draw: damaged(draw, entry.read_text(encoding="utf-8")))()))
        status, _, err = run(here, *words)  # an entry that says something else in the right shape is believed
        assert (status in (0, 1), err) == (True, "")
        status, _, _ = run(here, "clean")
        assert status == 0
        assert not entry.exists()


# Pages of rules.

PAGES = [page.read_text(encoding="utf-8") for page in sorted((ROOT / "rules").glob("DLC*.md"))[::7]]


@st.composite
def odd_pages(draw: st.DrawFn) -> bytes:
    text = draw(st.sampled_from(PAGES)).replace("DLC", "ABC")
    parts = re.findall(r"```|[\w.-]+|[^\w\s]|\s+", text)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, min(len(parts) - 1, 250)))  # mostly in what is read: the head
        kind = draw(st.integers(0, 3))
        if kind == 0:
            del parts[at : at + draw(st.integers(1, 40))]
            parts = parts or ["\n"]
        elif kind == 1:
            parts[at] = draw(st.text(max_size=5) | st.sampled_from(["[", "{", "{x!z}", "true", "1", "'", "```"]))
        elif kind == 2:
            parts[at:at] = parts[:20]
        else:
            parts[at] = draw(st.sampled_from(ODD))
    return "".join(parts).encode("utf-8", "surrogatepass")


@fuzz(odd_pages(), 60)
def rule_pages(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "ABC101-of-our-own.md").write_bytes(data)
        told = ""
        try:
            pages.read(Path(name))
        except (pages.PageError, UnicodeDecodeError) as error:  # as `extra` tells it, in one line
            told = str(error)
        assert "\n" not in told


def test_a_page_that_is_none_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "ABC101-x.md").write_bytes(b"\xff")
    (tmp_path / "rules" / "checks.py").write_text("")
    (tmp_path / "dlcheck.toml").write_text('extra-rules = ["rules"]\n')
    (tmp_path / "good.py").write_text(sources.GOOD, encoding="utf-8")
    extra._loaded.clear()
    status, out, _ = run(tmp_path, "check", "--output-format", "json", ".")
    (error,) = json.loads(out)["errors"]
    assert (status, error["path"], error["message"].count("\n")) == (2, "rules", 0)


# Messages of editors.

METHODS = (
    "textDocument/didOpen", "textDocument/didChange", "textDocument/didSave", "textDocument/didClose",
    "textDocument/diagnostic", "textDocument/codeAction", "textDocument/hover", "notebookDocument/didOpen",
    "notebookDocument/didChange", "workspace/didChangeConfiguration", "workspace/didChangeWatchedFiles",
    "workspace/executeCommand", "workspace/diagnostic", "workspace/didChangeWorkspaceFolders", "codeAction/resolve",
    "$/cancelRequest", "$/setTrace", "nonsense", "", "window/workDoneProgress/cancel", "workspace/didDeleteFiles",
)  # fmt: skip
_URIS = st.sampled_from(
    ["file:///a.py", "untitled:a", "", "file:", "file:///%00.py", "file:///\ud800.py", "http://[", "a"]
)
_POSITION = st.fixed_dictionaries({
    "line": st.sampled_from([0, 1, 7, -1, 2**31 - 1, 2**40, "a", None]),
    "character": st.sampled_from([0, 5, -1, 2**31 - 1, 1.5]),
})  # fmt: skip
_RANGE = st.fixed_dictionaries({"start": _POSITION, "end": _POSITION})
_DOCUMENT = st.fixed_dictionaries({
    "uri": _URIS, "languageId": st.just("python"), "version": st.sampled_from([0, 1, -1, 2**40, None]),
    "text": st.sampled_from(["", sources.GOOD, "x = (", "import torch, DataLoader\0", "\r\n\r"]) | st.text(max_size=9),
})  # fmt: skip
_CHANGES = st.lists(
    st.fixed_dictionaries({"text": st.text(max_size=5)}, optional={"range": _RANGE, "rangeLength": st.integers()}),
    max_size=3,
)
PARAMETERS = JSON | st.fixed_dictionaries(
    {"textDocument": _DOCUMENT},
    optional={
        "contentChanges": _CHANGES, "range": _RANGE, "position": _POSITION,
        "context": st.fixed_dictionaries({"diagnostics": JSON}) | st.just({"diagnostics": []}),
        "settings": JSON, "command": st.text(max_size=4), "arguments": JSON, "notebookDocument": JSON,
    },
)  # fmt: skip
MESSAGES = st.lists(st.tuples(st.sampled_from(METHODS), st.booleans(), PARAMETERS), min_size=5, max_size=15)


class Server:
    """`dlcheck lsp` as an editor starts it; what it says is thrown away until an answer is wanted."""

    def __init__(self, here: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.errors = open(here / "stderr", "w+b")  # noqa: SIM115 -- for as long as the server lives
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dlcheck", "lsp"], cwd=here, env=environment, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.errors,
        )  # fmt: skip
        self.number = 0
        text: dict[str, Any] = {"diagnostic": {}, "hover": {}, "codeAction": {}}
        can = {"textDocument": text, "workspace": {"diagnostics": {"refreshSupport": True}}}
        self.ask("initialize", {"processId": None, "rootUri": here.as_uri(), "capabilities": can})
        self.send({"method": "initialized", "params": {}})

    def send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def ask(self, method: str, params: Any) -> dict[str, Any]:
        self.number += 1
        self.send({"id": f"asked-{self.number}", "method": method, "params": params})
        while True:
            message = self.read()
            if message.get("id") == f"asked-{self.number}" and "method" not in message:
                return message

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        length = 0
        while (line := self.process.stdout.readline()) != b"\r\n":
            assert line, "the server has ended"
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        found: dict[str, Any] = json.loads(self.process.stdout.read(length))
        return found

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.errors.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("pygls")
    here = tmp_path_factory.mktemp("editor")
    (here / "pyproject.toml").touch()
    server = Server(here)
    yield server
    server.end()


def answers(server: Server, messages: list[tuple[str, bool, Any]]) -> None:
    """Whatever was said to it, it answers what is asked next, and as ever."""
    for number, (method, is_request, params) in enumerate(messages):
        server.send({"method": method, "params": params, **({"id": number} if is_request else {})})
    document = {"uri": "file:///good.py", "languageId": "python", "version": 1, "text": sources.GOOD}
    server.send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
    said = server.ask("textDocument/diagnostic", {"textDocument": {"uri": "file:///good.py"}})
    server.send({"method": "textDocument/didClose", "params": {"textDocument": {"uri": "file:///good.py"}}})
    assert {"DLC101", "DLC202"} <= {one["code"] for one in said["result"]["items"]}, said
    assert server.process.poll() is None


sent = [0]
FEWER = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


@pytest.mark.slow
@settings(max_examples=2, deadline=None, derandomize=True, database=None, suppress_health_check=FEWER)
@given(MESSAGES)
def test_messages(server: Server, messages: list[tuple[str, bool, Any]]) -> None:
    answers(server, messages)


@pytest.mark.long
@settings(max_examples=max(LONG // 100, 10), deadline=None, database=None, suppress_health_check=FEWER)
@given(MESSAGES)
def test_many_messages(server: Server, messages: list[tuple[str, bool, Any]]) -> None:
    answers(server, messages)
    sent[0] += len(messages)
    print(f"messages: {sent[0]} inputs")


test_mutated_sources, test_many_mutated_sources = mutated_sources
test_programs, test_many_programs = programs
test_comments, test_many_comments = comments
test_configurations, test_many_configurations = configurations
test_baselines, test_many_baselines = baselines
test_caches, test_many_caches = caches
test_rule_pages, test_many_rule_pages = rule_pages
