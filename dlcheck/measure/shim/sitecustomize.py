"""Taken up by every Python that a measured program starts: first what it shadows, then the shim."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder

HERE = os.path.dirname(os.path.abspath(__file__))


def shadowed() -> None:
    """Run the sitecustomize that would have been found without us: of the system, of an environment, of coverage."""
    path = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def role() -> str | None:
    """Whether this is a program, a process that multiprocessing starts for one, or none of our business."""
    if not os.environ.get("DLCHECK_SHIM"):
        return None
    words: list[str] = list(getattr(sys, "orig_argv", None) or getattr(sys, "argv", []))
    if any(word.startswith("from multiprocessing.resource_tracker") for word in words[:6]):
        return None
    if "--multiprocessing-fork" in words or any(word.startswith("from multiprocessing.") for word in words[:6]):
        return "child"
    return "program"


try:
    shadowed()
except Exception as error:  # noqa: BLE001 -- it may be anybody's; Python itself goes on after one that fails
    sys.stderr.write(f"Error in sitecustomize: {type(error).__name__}: {error}\n")

_role = role()
if _role is not None:
    try:
        import dlcheck_shim  # type: ignore[import-not-found]

        dlcheck_shim.install(_role)
    except Exception as error:  # noqa: BLE001 -- whatever goes wrong here, the program is to run as it would without us
        sys.stderr.write(f"dlcheck: the program cannot be measured: {type(error).__name__}: {error}\n")
