"""What a training program means: its loaders, datasets, loops and transfers, across files."""

from dlcheck.model.project import Project
from dlcheck.targets import Targets

__all__ = ["Project", "Targets"]
