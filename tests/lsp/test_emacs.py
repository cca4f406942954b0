"""A real Emacs with eglot, in a batch: it shows a finding of the example project, applies its fix, and saves."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from faulty import ROOT, copied, is_fixed

EMACS = shutil.which("emacs")
LOADS = ["--batch", "--eval", "(progn (require 'package) (package-initialize) (require 'eglot))"]


def why_not() -> str:
    if EMACS is None:
        return "there is no Emacs here"
    found = subprocess.run([EMACS, *LOADS], capture_output=True, check=False).returncode == 0
    return "" if found else "this Emacs has no eglot"


pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not() or "not skipped")]

PLAY = """\
(setq eglot-sync-connect 60
      eglot-connect-timeout 60
      eglot-confirm-server-initiated-edits nil)

(defun wait-for (is-so)
  (with-timeout (60 nil)
    (while (not (funcall is-so))
      (flymake-start)
      (accept-process-output nil 0.1))))

(find-file "devices.py")
(setq project-find-functions (list (lambda (_) (cons 'transient default-directory))))
(apply #'eglot (eglot--guess-contact))
(wait-for #'flymake-diagnostics)
(let* ((found (flymake-diagnostics))
       (first (car found))
       (shown (mapcar (lambda (one) `((line . ,(line-number-at-pos (flymake-diagnostic-beg one)))
                                     (text . ,(substring-no-properties (flymake-diagnostic-text one)))))
                      found)))
  (goto-char (flymake-diagnostic-beg first))
  (cl-letf (((symbol-function 'completing-read) (lambda (_prompt _items &rest more) (nth 4 more)))
            (last-nonmenu-event t))
    (eglot-code-actions (point) (flymake-diagnostic-end first) "quickfix" t))
  (save-buffer) ; in a batch nothing else sends what has changed
  (wait-for (lambda () (not (flymake-diagnostics))))
  (let ((out (json-encode `((shown . ,(vconcat shown)) (left . ,(length (flymake-diagnostics)))))))
    (with-temp-file "out.json" (insert out))))
(eglot-shutdown (eglot-current-server))
"""


def test_emacs_shows_a_finding_and_applies_its_fix(tmp_path: Path) -> None:
    project, here = copied(tmp_path)
    (project / "play.el").write_text(PLAY, encoding="utf-8")
    snippet = ROOT / "editors" / "emacs" / "dlcheck.el"
    assert EMACS is not None
    play = [EMACS, *LOADS, "--load", str(snippet), "--load", "play.el"]
    done = subprocess.run(play, cwd=project, env=here, capture_output=True, text=True, timeout=200, check=False)
    assert (project / "out.json").exists(), done.stdout + done.stderr
    found = json.loads((project / "out.json").read_text(encoding="utf-8"))
    (shown,) = found["shown"]
    assert shown["line"] == 17
    assert shown["text"].startswith(
        "dlcheck [DLC101]: `value.to(device)` blocks although `DataLoader` pins its batches"
    )
    assert found["left"] == 0
    assert is_fixed(project)
