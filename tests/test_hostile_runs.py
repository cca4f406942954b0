"""No file, project or stream breaks a run: no traceback, no hang, the right exit code, other files still checked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import forked
import pytest

HEAD = "import torch\nfrom torch.utils.data import DataLoader, Dataset\n"
TAIL = """
loader = DataLoader(ds, num_workers=4, pin_memory=True)
for epoch in range(3):
    for batch in loader:
        batch = batch.to("cuda")
"""
GOOD = HEAD + TAIL
ROOT = Path(__file__).parents[1]

Dlcheck = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def _this_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("DLCHECK_OUTPUT_FORMAT", raising=False)


def interpreted(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dlcheck", *arguments]
    return subprocess.run(command, cwd=cwd, text=True, timeout=120, check=False, capture_output=True)


def check(folder: Path, name: str, *, dlcheck: Dlcheck = forked.dlcheck) -> subprocess.CompletedProcess[str]:
    """Run on one file and a good one: neither crash nor fault, and the good one's finding is there."""
    (folder / "good.py").write_text(GOOD, encoding="utf-8")
    done = dlcheck("check", "--isolated", "--output-format", "concise", name, "good.py", cwd=folder)
    assert done.returncode == 1, (done.returncode, done.stdout[-500:], done.stderr[-1500:])
    assert "internal error" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "good.py:7:17: DLC101" in done.stdout, done.stdout
    return done


# Python that leads the model round in circles, or grows where it is multiplied out.
CIRCLES: dict[str, str] = {
    "iter of itself": """
class Again:
    def __iter__(self): return iter(self)
    def __next__(self): return next(self)
    def __call__(self, *a): return self(*a)
for x in Again(): x.cuda()
for x in Again()()(): x.cuda()
""",
    "generator of itself": "def g():\n    yield from g()\n    for x in g(): yield x\nfor x in g(): x.cuda()\n"
    "h = (x for x in h)",
    "dict of itself": "d = {**d}\nd = dict(d, **d)\nd.update(d)\nd['a'] = d\nd |= d\nds = DataLoader(d, **d)",
    "function of itself": """
def make(n=3, **kw):
    if n: return make(n - 1, num_workers=n, **kw)
    return DataLoader(make(n), **kw)
def up(b): return up(up(b.cuda()))
for b in make(make): up(up(b))
""",
    "classes of themselves": """
class A(A): pass
class B(C): pass
class C(B): pass
class D(D.E, metaclass=D):
    class E(D): pass
class S(Other): pass
class Other(S, Dataset):
    def __getitem__(self, i): return super().__getitem__(i)
class L(L, DataLoader):
    def __init__(self, *a, **k): self.__init__(*a, **k)
for b in L(B(), num_workers=2, pin_memory=True): b.cuda()
for b in DataLoader(S(), num_workers=2, pin_memory=True): b.cuda()
""",
    "lambdas": "l = lambda l=l: l(l)\n"
    "y = lambda f: (lambda x: x(x))(lambda x: f(lambda v: x(x)(v)))\nds = y(lambda s: s)(l(l))",
    "every function calls every other": "\n".join(
        f"def f{i}(x, d):\n    for b in x: b.to(d)\n"
        + "\n".join(f"    f{j}(x, f{j}(d, x))" for j in range(10))
        + f"\n    return f{(i + 1) % 10}(d, x)"
        for i in range(10)
    )
    + "\nf0(DataLoader(1, pin_memory=True, num_workers=f0(1, 2)), 'cuda')",
    "doubling": "a0 = (1, 2)\nb0 = {'a': 1}\ns0 = 'a'\n"
    + "\n".join(
        f"a{i} = (a{i - 1}, a{i - 1})\nb{i} = {{**b{i - 1}, 'k': b{i - 1}}}\ns{i} = s{i - 1} + s{i - 1}\n"
        f"def g{i}(x): return g{i - 1}(x) + g{i - 1}(g{i - 1}(x))"
        for i in range(1, 50)
    )
    + "\nfor b in DataLoader(a49, num_workers=s49, batch_size=g49(1), **b49): g49(b).cuda()",
    "branches": "d = {}\n"
    + "\n".join(f"if c{i}:\n    d['o{i}'] = {i}\nelse:\n    d.update(num_workers={i})" for i in range(200))
    + "\nfor b in DataLoader(1, **d): b.cuda()",
    "lambdas outside of functions": """
NAMES = ["a"]
def fetch(path): return open(path).read()
fixed = lambda i: fetch(i)
class D(Dataset):
    pick = lambda self, i, key=NAMES[0]: fetch(key) + str(self.table.iloc[i])
    def __init__(self, tf): self.tf = tf
    def __getitem__(self, i): return fixed(i), self.pick(i), self.tf(i)
ds = D(lambda i, name=NAMES[0]: fetch(name))
DataLoader(ds, num_workers=2, worker_init_fn=lambda i: fixed(i), collate_fn=lambda b: fixed(b))
""",
    "data sets that make themselves": """
class A(Dataset):
    def __init__(self, d): self.d = B(self); self.e = B(d); self.f = A(d)
    def __getitem__(self, i): return self.d[i], self.f[i]
class B(Dataset):
    def __init__(self, d): self.d = A(self); self.e = A(d); self.t = lambda x: x
    def __getitem__(self, i): return self.d[i]
ds = A(1)
""",
    "a step that calls itself": """
def step(net, x, opt):
    loss = net(x).mean()
    loss.backward()
    opt.step()
    loss = step(net, x, opt)
    return loss
total = 0
for x in DataLoader(1):
    loss = step(torch.nn.Linear(1, 1), x, 1)
    total += loss
ds = 1
""",
    "a loader in a condition": "ds = 1\nif [x for x in DataLoader(1, num_workers=2)]:\n    pass\n",
    "doubling in a sample": "class D(Dataset):\n    def __getitem__(self, i):\n        x0 = i\n"
    + "".join(f"        x{i} = x{i - 1}, x{i - 1}, {{'a': x{i - 1}}}\n" for i in range(1, 30))
    + "        return x29\nds = D()",
    "branches in a sample": "class D(Dataset):\n    def __init__(self, p):\n        x = p\n"
    + "".join(f"        if c{i}:\n            x = {{'a': x, 'b': x}}\n" for i in range(30))
    + "        self.data = x\n    def __len__(self): return len(self.data)\n    def __getitem__(self, i):\n"
    + "        x = self.data[i]\n        p = 'a'\n"
    + "".join(f"        if c{i}:\n            x = {{'a': x}}\n            p = p + p\n" for i in range(30))
    + "        return x, open(p).read()\nds = D(1)",
    "doubling in a seed": "import numpy as np\ndef seed(i):\n    x0 = i\n"
    + "".join(f"    x{i} = x{i - 1} + x{i - 1} + x{i - 1}\n" for i in range(1, 20))
    + "    np.random.seed(x19)\nclass D(Dataset):\n    def __getitem__(self, i): return np.random.rand(i)\n"
    + "ds = D()\nDataLoader(ds, num_workers=2, worker_init_fn=seed)",
    "data sets in branches": "from torch.utils.data import ConcatDataset\nds = Other()\n"
    + "".join(f"if c{i}:\n    ds = ConcatDataset([ds, ds])\nelse:\n    ds = ConcatDataset([ds])\n" for i in range(14))
    + "model = torch.nn.Linear(1, 1)\nopt = torch.optim.SGD(model.parameters())\n"
    + "for epoch in range(3):\n    for b in DataLoader(ds):\n        model(b).sum().backward()\n        opt.step()\n",
    "callers": "def make(w, **k): return DataLoader(ds, num_workers=w, **k)\n"
    + "\n".join(f"for b in make({i}, pin_memory={i % 2 == 0}): b.cuda()" for i in range(300)),
    "nested ifs": "".join("  " * i + f"if a{i}:\n" + "  " * (i + 1) + f"n = {i}\n" for i in range(60))
    + "for b in DataLoader(1, num_workers=n, pin_memory=n > 2): b.cuda()",
    "a huge table": "d = {"
    + ", ".join(f"'k{i}': {i}" for i in range(5000))
    + "}\nds = ["
    + ", ".join(f"d['k{i}']" for i in range(2000))
    + "]\nd = {**d, 'num_workers': 4}\nfor b in DataLoader(ds, **d): b.cuda()",
    "arithmetic": "for b in DataLoader(1, num_workers=10**10**10, batch_size=2 << 9999999999, timeout=1 // 0,"
    " drop_last=1e999, sampler='a' * 10**12, collate_fn=[0] * 10**11, prefetch_factor=int('9' * 5000)): b.cuda()",
    "nothing given": "DataLoader()\nDataLoader(*a, **b)\nDataLoader(**DataLoader)\nnext(iter())\nzip()\nenumerate(*x)\n"
    "min()\nint(*x)\nsuper(1, 2, 3)\nos.environ.get()\ntorch.device()\nmp.spawn()\n"
    "for _ in enumerate(): _.cuda()\nfor b in torch.utils.data.random_split(): b.to()",
}


@pytest.mark.parametrize("name", CIRCLES)
def test_circles_end(name: str, tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(HEAD + CIRCLES[name] + TAIL, encoding="utf-8")
    began = time.monotonic()
    check(tmp_path, "odd.py")
    assert time.monotonic() - began < 60  # a shared machine may be busy; quiet, each takes one or two


def test_circular_imports_end(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    loop = HEAD + "from .{0} import *\nfrom .{0} import loader as other, ds\nfrom pkg import *\n"
    loop += "for b in other: b.cuda()\n" + TAIL
    (package / "__init__.py").write_text("from .a import *\nfrom . import *\nfrom ..... import x\n", encoding="utf-8")
    (package / "a.py").write_text(loop.format("b"), encoding="utf-8")
    (package / "b.py").write_text(loop.format("a"), encoding="utf-8")
    check(tmp_path, "pkg")


# Text that the gate must refuse, and say so, before libcst sees it: it would hang, crash or fail.
REFUSED: dict[str, str] = {
    "and": "x = a" + " and a" * 100_000,
    "formats": 'x = f"' + "{a:" * 100_000 + "}" * 100_000 + '"',
    "patterns": "match a:\n    case " + "[" * 90 + "]" * 90 + ": pass",
    "patterns in parentheses": "match a:\n    case " + "(" * 40 + "a" + ")" * 40 + ": pass",
    "patterns of mappings": "match a:\n    case " + "{1: " * 20 + "a" + "}" * 20 + ": pass",
    "an unknown character name": 'x = "\\N{no such name}"',
    "a short escape": 'x = b"\\xzz"',
}


@pytest.mark.parametrize("name", REFUSED)
def test_hazards_are_findings(name: str, tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(HEAD + REFUSED[name] + "\n", encoding="utf-8")
    assert "DLC001" in check(tmp_path, "odd.py").stdout


def test_ordinary_patterns_are_read(tmp_path: Path) -> None:
    text = HEAD + 'match a:\n    case {"a": [x, *xs], "b": {"c": A(B(d=(1 | 2)))}} if f({1: {2: 3}}): x = [[[[1]]]]\n'
    (tmp_path / "odd.py").write_text(text, encoding="utf-8")
    assert "DLC001" not in check(tmp_path, "odd.py").stdout


def test_a_number_too_long_for_python_in_a_notebook(tmp_path: Path) -> None:
    (tmp_path / "nb.ipynb").write_text('{"cells": ' + "9" * 5000 + "}", encoding="utf-8")
    assert "nb.ipynb:1:1: DLC001" in check(tmp_path, "nb.ipynb").stdout


def test_an_absurd_version_is_no_version(tmp_path: Path) -> None:
    project = {"dependencies": ["torch>=" + "9" * 5000], "requires-python": ">=" + "9" * 5000}
    lines = [f"{key} = {json.dumps(value)}" for key, value in project.items()]
    (tmp_path / "pyproject.toml").write_text("\n".join(["[project]", *lines]), encoding="utf-8")
    check(tmp_path, "good.py")


def test_modules_beside_the_code_are_not_run(tmp_path: Path) -> None:
    for name in ("json", "click", "libcst", "tomli"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the code was run')", encoding="utf-8")
    check(tmp_path, "json.py", dlcheck=interpreted)


# Streams and signals


@pytest.fixture
def good(tmp_path: Path) -> Path:
    (tmp_path / "good.py").write_text(GOOD, encoding="utf-8")
    return tmp_path


def shell(folder: Path, redirections: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = f'"$0" -m dlcheck "$@" {redirections}'
    return subprocess.run(
        ["sh", "-c", command, sys.executable, *arguments], cwd=folder, text=True, capture_output=True, check=False
    )


@pytest.mark.parametrize(("redirections", "status"), [(">&-", 1), ("2>&-", 1), (">&- 2>&- <&-", 1)])
def test_closed_output(redirections: str, status: int, good: Path) -> None:
    done = shell(good, redirections, "check", "--isolated", "good.py")
    assert (done.returncode, done.stderr) == (status, "")


def test_closed_input_is_told(good: Path) -> None:
    done = shell(good, "<&-", "check", "-")
    assert (done.returncode, done.stderr) == (2, "dlcheck: error: standard input is closed\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [("check", "--isolated", "good.py"), ("rules",), ("check", "--show-files")])
def test_full_disk_is_told(arguments: tuple[str, ...], good: Path) -> None:
    done = shell(good, ">/dev/full", *arguments)
    assert (done.returncode, done.stderr) == (2, "dlcheck: error: No space left on device\n")


def test_current_folder_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    done = subprocess.run(
        ["sh", "-c", 'cd gone && rmdir ../gone && "$0" -m dlcheck check', sys.executable],
        cwd=tmp_path, text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("dlcheck: error: ")
    assert done.stderr.count("\n") == 1


def test_a_fault_of_our_own_exits_with_two(good: Path) -> None:
    script = (
        "import sys\nfrom dlcheck.cli import check, main\n"
        "def broken(*_, **__): raise ZeroDivisionError('x')\n"
        "check.configured = broken\nsys.argv = ['dlcheck', 'check', 'good.py']\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=good, text=True, capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("dlcheck: error: internal error: ZeroDivisionError: x")


def heed_interrupts() -> None:
    """Whoever started the tests in the background ignores interrupts, and children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_interrupt_has_no_traceback(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "dlcheck", "check", "-"],
        cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=heed_interrupts,
    ) as process:  # fmt: skip
        time.sleep(2)  # it waits for its input now
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=30)
    assert (process.returncode, complaint.strip()) == (130, "dlcheck: interrupted")  # click adds a line


def test_what_python_would_warn_of_is_not_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Newer Pythons say by themselves that an escape is odd, older ones only where they are asked to."""
    collate = 'collate_fn=lambda batch: [re.sub("\\w", "", text) for text in batch]'
    text = GOOD.replace("pin_memory=True", f"pin_memory=True, {collate}") + 'pattern = "\\d+"\n'
    (tmp_path / "a.py").write_text("import re\n" + text)
    monkeypatch.setenv("PYTHONWARNINGS", "always")
    for options in ((), ("--diff", "--unsafe-fixes")):
        done = interpreted("check", "--no-cache", *options, "a.py", cwd=tmp_path)
        assert "lambda batch" in done.stdout
        assert "escape" not in done.stderr
