"""Runs ``python -m dlcheck`` without the current folder among those that are imported from.

A project's own ``queue.py`` must not be taken for Python's, and of a folder that is only looked at nothing is run.
"""

import os
import runpy
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if entry and os.path.abspath(entry) != here]
runpy.run_module("dlcheck", run_name="__main__", alter_sys=True)
