"""A real Neovim, headless: it attaches, shows a finding of the example project, applies its fix, and saves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NVIM = shutil.which("nvim")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(NVIM is None, reason="there is no Neovim here")]

PLAY = """\
local out = {}
local function finish()
  local file = io.open("out.json", "w")
  file:write(vim.fn.json_encode(out))
  file:close()
  vim.cmd("qall!")
end
vim.cmd("edit devices.py")
if not vim.wait(30000, function() return #vim.diagnostic.get(0) > 0 end, 50) then finish() return end
for _, one in ipairs(vim.diagnostic.get(0)) do
  table.insert(out, { code = one.code or one.user_data.lsp.code, line = one.lnum, source = one.source })
end
local line = vim.diagnostic.get(0)[1].lnum
local column = vim.diagnostic.get(0)[1].col
vim.api.nvim_win_set_cursor(0, { line + 1, column })
local params = vim.lsp.util.make_range_params()
params.context = { diagnostics = {} }
local answers = vim.lsp.buf_request_sync(0, "textDocument/codeAction", params, 30000) or {}
for id, answer in pairs(answers) do
  for _, action in ipairs(answer.result or {}) do
    if action.title == "dlcheck: Add `non_blocking=True`" then
      vim.lsp.util.apply_workspace_edit(action.edit, vim.lsp.get_client_by_id(id).offset_encoding)
    end
  end
end
vim.cmd("write")
vim.wait(30000, function() return #vim.diagnostic.get(0) == 0 end, 50)
table.insert(out, { left = #vim.diagnostic.get(0) })
finish()
"""


def test_neovim_shows_a_finding_and_applies_its_fix(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "faulty", project)
    before = (project / "devices.py").read_text(encoding="utf-8")
    (project / "play.lua").write_text(PLAY, encoding="utf-8")
    command = tmp_path / "bin" / "dlcheck"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m dlcheck "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    here = {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    snippet = ROOT / "editors" / "neovim" / _snippet(here)
    assert NVIM is not None
    play = [NVIM, "--headless", "-u", "NONE", "-c", "filetype on", "-c", f"luafile {snippet}", "-c", "luafile play.lua"]
    done = subprocess.run(play, cwd=project, env=here, capture_output=True, text=True, timeout=120, check=False)
    found = json.loads((project / "out.json").read_text(encoding="utf-8"))
    assert found == [{"code": "DLC101", "line": 16, "source": "dlcheck"}, {"left": 0}], done.stdout + done.stderr
    after = (project / "devices.py").read_text(encoding="utf-8")
    assert after == before.replace("value.to(device)", "value.to(device, non_blocking=True)")


def _snippet(env: dict[str, str]) -> str:
    """The one for this version: what came later is not there in an older one, and the oldest way is gone in newer."""
    said = subprocess.run([str(NVIM), "--version"], env=env, capture_output=True, text=True, check=True).stdout
    version = tuple(int(part) for part in said.split()[1].lstrip("v").split("-")[0].split(".")[:2])
    return "dlcheck-0.7.lua" if version < (0, 8) else "dlcheck-0.8.lua"
