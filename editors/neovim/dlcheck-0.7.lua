-- Neovim 0.7 (Debian 12) and later: dlcheck for every Python buffer. `:luafile` it from init.lua, or copy it there.
vim.api.nvim_create_autocmd("FileType", {
  pattern = "python",
  callback = function(args)
    local marks = { "pyproject.toml", "dlcheck.toml", "setup.py", ".git" }
    local folder = vim.fn.fnamemodify(vim.api.nvim_buf_get_name(args.buf), ":p:h")
    local root = folder
    while vim.fn.fnamemodify(root, ":h") ~= root do
      local found = false
      for _, mark in ipairs(marks) do
        found = found or vim.loop.fs_stat(root .. "/" .. mark) ~= nil
      end
      if found then
        break
      end
      root = vim.fn.fnamemodify(root, ":h")
    end
    vim.g.dlcheck_clients = vim.g.dlcheck_clients or vim.empty_dict()
    local id = vim.g.dlcheck_clients[root]
    if not id then
      id = vim.lsp.start_client({ name = "dlcheck", cmd = { "dlcheck", "lsp" }, root_dir = root })
      if not id then
        return -- Neovim has said why: `dlcheck` is not on its PATH
      end
      local clients = vim.g.dlcheck_clients
      clients[root] = id
      vim.g.dlcheck_clients = clients
    end
    vim.lsp.buf_attach_client(args.buf, id)
  end,
})
