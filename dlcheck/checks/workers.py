"""Rules about what workers do besides making samples: too many, nested, hanging, or with lost state."""

from __future__ import annotations
