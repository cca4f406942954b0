"""A workspace that nobody trusts: it is checked, and nothing of its own is run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest
from test_extra_rules import CHECKS, PAGE

pytestmark = pytest.mark.slow

TRACE = "open('imported', 'w').close()\n"
LOAD = """\
from torch.utils.data import DataLoader


def load(dataset):
    for batch in DataLoader(dataset, batch_size=8, num_workers=2, pin_memory=True):
        batch.cuda()
"""


def send(stream: IO[bytes], method: str, params: Any, **more: Any) -> None:
    body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
    stream.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    stream.flush()


def receive(stream: IO[bytes]) -> dict[str, Any]:
    length = 0
    while line := stream.readline().strip():
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    message: dict[str, Any] = json.loads(stream.read(length))
    return message


def found_in(project: Path, options: Any) -> list[str]:
    """The codes that a server, started in a project, finds in its file."""
    uri = (project / "load.py").as_uri()
    command = [sys.executable, "-m", "dlcheck", "lsp"]
    with subprocess.Popen(command, cwd=project, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        start = {"processId": None, "rootUri": project.as_uri(), "capabilities": {}, "initializationOptions": options}
        send(server.stdin, "initialize", start, id=1)
        send(server.stdin, "initialized", {})
        item = {"uri": uri, "languageId": "python", "version": 1, "text": LOAD}
        send(server.stdin, "textDocument/didOpen", {"textDocument": item})
        while (message := receive(server.stdout)).get("method") != "textDocument/publishDiagnostics":
            pass
        send(server.stdin, "shutdown", None, id=2)
        send(server.stdin, "exit", None)
        server.stdout.read()
    return [one["code"] for one in message["params"]["diagnostics"]]


@pytest.mark.parametrize("options", [None, {"trusted": True}, {"trusted": False, "extendSelect": ["DLC1"]}])
def test_rules_of_a_workspace_run_only_where_it_is_trusted(tmp_path: Path, options: Any) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "ABC101-big-batches.md").write_text(PAGE, encoding="utf-8")
    (tmp_path / "own" / "checks.py").write_text(CHECKS + TRACE, encoding="utf-8")
    (tmp_path / "dlcheck.toml").write_text('extra-rules = ["own"]\n', encoding="utf-8")
    (tmp_path / "load.py").write_text(LOAD, encoding="utf-8")
    assert "DLC101" in found_in(tmp_path, options)
    assert (tmp_path / "imported").exists() == (options is None or options["trusted"])
