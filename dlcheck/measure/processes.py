"""The processes of a program, all of them, wherever they have gone: found by what stands in their environment."""

from __future__ import annotations

import contextlib
import os
import subprocess

import psutil

VARIABLE = "DLCHECK_SHIM"  # names the file that tells a process of a program what is wanted


def end(process: subprocess.Popen[bytes], spec: str) -> None:
    """End a process and what it started, wherever that has gone: new sessions, and orphans of those that are dead."""
    with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    end_all(spec, process.pid)


def end_all(spec: str, session: int | None = None) -> bool:
    """End what belongs to a program, or to the session of its first process; whether there was anything.

    The process that cleans up after semaphores and shared memory goes last, by itself where it can.
    """
    for attempt in range(4):
        found = _members(session, spec)
        if not found:
            return attempt > 0
        trackers = [one for one in found if attempt < 2 and _is_tracker(one)]
        for member in found:
            if member not in trackers:
                with contextlib.suppress(psutil.Error):
                    member.kill()
        psutil.wait_procs(found, timeout=1.0)
    return True


def _members(session: int | None, spec: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid in (0, os.getpid()) or process.status() == psutil.STATUS_ZOMBIE:
                continue
            same = session is not None and hasattr(os, "getsid") and os.getsid(process.pid) == session
            if same or process.environ().get(VARIABLE) == spec:
                found.append(process)
    return found


def _is_tracker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any("multiprocessing.resource_tracker" in word for word in process.cmdline())
    return False
