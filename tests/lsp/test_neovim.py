"""A real Neovim, headless: it attaches, shows a finding of the example project, applies its fix, and saves."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from faulty import ROOT, copied, is_fixed

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
local clients = (vim.lsp.get_clients or vim.lsp.buf_get_clients)()
local _, client = next(clients)
local params = vim.lsp.util.make_range_params(0, client.offset_encoding)
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


def version() -> tuple[int, ...]:
    if NVIM is None:
        return ()
    said = subprocess.run([NVIM, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in said.split()[1].lstrip("v").split("-")[0].split(".")[:2])


VERSION = version()
# From which Neovim on each works, and before which: the first way goes when the third is there for all.
SNIPPETS = {"dlcheck-0.7.lua": ((0, 7), (0, 12)), "dlcheck-0.8.lua": ((0, 8), (1, 0)), "dlcheck.lua": ((0, 11), (1, 0))}


@pytest.mark.parametrize("name", SNIPPETS)
def test_neovim_shows_a_finding_and_applies_its_fix(tmp_path: Path, name: str) -> None:
    since, before = SNIPPETS[name]
    if not since <= VERSION < before:
        pytest.skip(f"it is for another Neovim than {VERSION}")
    project, here = copied(tmp_path)
    (project / "play.lua").write_text(PLAY, encoding="utf-8")
    snippet = ROOT / "editors" / "neovim" / name
    assert NVIM is not None
    play = [NVIM, "--headless", "-u", _init(Path(here["XDG_CONFIG_HOME"]), snippet), "-c", "luafile play.lua"]
    done = subprocess.run(play, cwd=project, env=here, capture_output=True, text=True, timeout=120, check=False)
    found = json.loads((project / "out.json").read_text(encoding="utf-8"))
    assert found == [{"code": "DLC101", "line": 16, "source": "dlcheck"}, {"left": 0}], done.stdout + done.stderr
    assert is_fixed(project)


def _init(folder: Path, snippet: Path) -> str:
    """What a user is told to do with a snippet: to run it, or to lay it where servers are described, by their names."""
    init = folder / "nvim" / "init.lua"
    (init.parent / "lsp").mkdir(parents=True)
    if snippet.name == "dlcheck.lua":
        shutil.copy(snippet, init.parent / "lsp")
        init.write_text('vim.lsp.enable("dlcheck")\n', encoding="utf-8")
    else:
        init.write_text(f'dofile("{snippet}")\n', encoding="utf-8")
    return str(init)
