"""Rules about seeds and generators, and about who draws the same numbers twice."""

from __future__ import annotations
