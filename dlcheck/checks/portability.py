"""Rules about start methods: what only works under fork."""

from __future__ import annotations
