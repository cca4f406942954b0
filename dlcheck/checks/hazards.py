"""Rules about what breaks inside workers: nested processes, batches that cannot travel, lost or stale state."""

from __future__ import annotations
