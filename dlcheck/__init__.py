"""dlcheck: the linter and advisor for PyTorch input pipelines."""

__version__ = "0.1.0"
