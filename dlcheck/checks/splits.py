"""Rules about evaluation, splitting and weighting."""

from __future__ import annotations
