-- Neovim 0.8 to 0.10: dlcheck for every Python buffer.
vim.api.nvim_create_autocmd("FileType", {
  pattern = "python",
  callback = function(args)
    local marks = { "pyproject.toml", "dlcheck.toml", "setup.py", ".git" }
    local found = vim.fs.find(marks, { upward = true, path = vim.api.nvim_buf_get_name(args.buf) })
    vim.lsp.start({
      name = "dlcheck",
      cmd = { "dlcheck", "lsp" },
      root_dir = vim.fs.dirname(found[1] or vim.api.nvim_buf_get_name(args.buf)),
    })
  end,
})
