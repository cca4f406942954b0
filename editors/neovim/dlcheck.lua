-- Neovim 0.11 and later: put this file into ~/.config/nvim/lsp/, and `vim.lsp.enable("dlcheck")` into init.lua.
return {
  cmd = { "dlcheck", "lsp" },
  filetypes = { "python" },
  root_markers = { { "pyproject.toml", "dlcheck.toml" }, "setup.py", ".git" },
  settings = { dlcheck = {} }, -- the keys of [tool.dlcheck], as extendSelect or ["extend-select"]
}
