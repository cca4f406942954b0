"""Rules of a project's own: pages and checks from the folders that its configuration names.

This is the only way in which linting runs code that is not dlcheck's.  A folder holds pages
(``ABC101-name.md``) and one module, ``checks.py``, with their generators.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from pathlib import Path

from dlcheck import files, pages
from dlcheck.checks import RULES
from dlcheck.findings import ReportError
from dlcheck.pages import Page, PageError

CHECKS = "checks.py"
OURS = "DLC"

_loaded: dict[str, frozenset[str] | ReportError] = {}
_files: dict[str, str] = {}  # the module that a rule comes from, by its code


def load(folder: str) -> frozenset[str] | ReportError:
    """The codes of the rules in a folder, which are registered with the others; or why there are none."""
    if folder not in _loaded:
        before = dict(RULES)
        found = _load(folder)
        if isinstance(found, ReportError):
            RULES.clear()
            RULES.update(before)
        _loaded[folder] = found
    return _loaded[folder]


def _load(folder: str) -> frozenset[str] | ReportError:
    try:
        own = pages.read(Path(folder))
    except (PageError, OSError, ValueError) as error:  # a page that is no UTF-8, a NUL in the folder's name
        return ReportError(files.shown(folder), 0, f"extra rules: {_reason(error)}")
    problem = _problem(folder, own)
    if problem is not None:
        return problem
    file = os.path.join(folder, CHECKS)
    before = set(RULES)
    failure = _import(file)
    if failure is not None:
        return failure
    added = set(RULES) - before
    if added != set(own):
        odd = ", ".join(sorted(added ^ set(own)))
        return ReportError(files.shown(file), 0, f"extra rules: {odd}: each rule needs both a page and a check")
    pages.register(own)
    _files.update(dict.fromkeys(own, file))
    return frozenset(own)


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _problem(folder: str, own: dict[str, Page]) -> ReportError | None:
    """What is wrong with the pages of a folder, or with its lack of a module."""
    known = pages.load()
    names = {page.name: page.code for page in known.values()}
    for code, page in own.items():
        if code.startswith(OURS):
            return ReportError(files.shown(folder), 0, f"extra rules: {code}: codes that begin with {OURS} are taken")
        if code in known or page.name in names:
            there = names.get(page.name, code)
            return ReportError(files.shown(folder), 0, f"extra rules: {code} ({page.name}) is there already: {there}")
    if not own:
        return ReportError(files.shown(folder), 0, "extra rules: no page, such as `ABC101-name-of-the-rule.md`, here")
    if not os.path.isfile(os.path.join(folder, CHECKS)):
        return ReportError(files.shown(folder), 0, f"extra rules: no `{CHECKS}` here")
    return None


def _import(file: str) -> ReportError | None:
    name = f"dlcheck_extra_rules_{len(_loaded)}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 -- whatever a user's module raises must not stop the run: sys.exit() too
        del sys.modules[name]
        return ReportError(files.shown(file), line_of(error, file), f"extra rules: {_told(error)}")
    return None


def line_of(error: BaseException, file: str) -> int:
    """The last line of ``file`` that an error passed through; 0 where none did."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno or 0
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno or 0 for frame in reversed(frames) if frame.filename == file), 0)


def failure(code: str, error: BaseException) -> ReportError:
    """What to report of a check of the user's own that raised."""
    file = _files[code]
    return ReportError(files.shown(file), line_of(error, file), f"{code} failed: {_told(error)}")


def _told(error: BaseException) -> str:
    """An error's class and words; what a user's code raises may have none, or fail to say them."""
    try:
        words = str(error)
    except Exception:  # noqa: BLE001
        words = "(without words)"
    return f"{type(error).__name__}: {words}"
