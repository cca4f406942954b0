"""The command line that train.py and pretrain.py share."""

from __future__ import annotations

import argparse
from pathlib import Path

HERE = Path(__file__).resolve().parent


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Classify tiles of satellite images.")
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--workers", type=int, default=2, help="loader processes for training")
    parser.add_argument("--eval-workers", type=int, default=0, help="loader processes for evaluation")
    parser.add_argument("--distributed", action="store_true", help="one process per GPU; start with torchrun")
    return parser
