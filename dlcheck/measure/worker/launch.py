"""Several processes of one command, side by side, as torchrun starts them: when one of them fails, all end.

Run as ``python launch.py '[{"RANK": "0"}, {"RANK": "1"}]' COMMAND...``: what each has in its environment besides ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

GRACE_S = 20.0  # one that has come to its end is not waited for by those that go on


def main() -> int:
    own, command = json.loads(sys.argv[1]), sys.argv[2:]
    processes = [subprocess.Popen(command, env={**os.environ, **one}) for one in own]
    end = float("inf")
    while True:
        statuses = [process.poll() for process in processes]
        if any(statuses) or None not in statuses or time.monotonic() > end:
            break
        if any(status is not None for status in statuses):
            end = min(end, time.monotonic() + GRACE_S)
        time.sleep(0.05)
    for process in processes:
        process.kill()
    return next((status if status > 0 else 128 - status for status in statuses if status), 0)


if __name__ == "__main__":
    sys.exit(main())
