"""What is measured, and how: in the interpreter of the user's project, with the standard library and torch alone.

A package under a name of its own: a project may have a `datasets` or a `memory` too.
"""
