;; eglot, which is part of Emacs since 29, and a package before (in Debian 12 elpa-eglot): dlcheck for every Python
;; buffer. `load' it from init.el, or copy it there.
(with-eval-after-load 'eglot
  (add-to-list 'eglot-server-programs '((python-mode python-ts-mode) . ("dlcheck" "lsp"))))
(dolist (hook '(python-mode-hook python-ts-mode-hook))
  (add-hook hook 'eglot-ensure))
