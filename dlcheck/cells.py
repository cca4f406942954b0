"""What of a notebook's cell is Python: magics and help become comments, and of a broken cell what parses stays."""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from collections.abc import Iterator

from dlcheck.source import line_starts

# Magics that run their cell as Python in the notebook's own namespace.
PYTHON_CELL_MAGICS = ("time", "timeit", "capture", "prun", "memit", "mprun", "lprun", "wandb", "heat", "skip")
# What IPython takes for no Python: a sign in front of a line, a magic or a command that a name is bound to, and a
# question mark behind an object, which makes a question of the whole line, whatever stands before it.
_ESCAPE = re.compile(r"\s*[%!?,;/]")
_BOUND = re.compile(r"(?P<bound>\s*(?:\[[^\]=%!]*\]|[\w.,:* \t])+=)\s*[%!]")
_HELP = re.compile(r"(?:[\w*]|\w\[-?[0-9]{1,9}\])\?\??\s*$")
_HELP_WIDTH = 40
# Not splitlines(): a form feed ends no line of Python.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)")
# Strings, comments, brackets and joined lines: enough to know which lines begin inside of something.
_TOKEN = re.compile(
    r"""(?P<string>\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}"""
    r"""|"(?:\\(?:\r\n|.)|[^"\\\r\n])*"|'(?:\\(?:\r\n|.)|[^'\\\r\n])*')"""
    r"""|(?P<comment>\#[^\r\n]*)|(?P<open>[\[({])|(?P<close>[\])}])|(?P<joint>\\(?:\r\n|\r|\n))|(?P<line>\r\n|\r|\n)""",
    re.DOTALL,
)
# Nothing is known of what this gives.
_UNKNOWN = "get_ipython()"


def as_python(code: str) -> str:
    """The code of a cell, line for line, with magics and questions as comments; it need not parse."""
    stripped = code.lstrip()
    if stripped.startswith("%%") and not re.match(rf"%%(?:{'|'.join(PYTHON_CELL_MAGICS)})\b(?!\?)", stripped):
        return "\n" * (len(line_starts(code)) - 1)
    return code if parses(code) else _without_magics(code)


def parses(code: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(code, "<cell>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _without_magics(code: str) -> str:
    inside, commented = _lines_inside(code)
    lines = _LINE.findall(code)
    continues = False
    for number, line in enumerate(lines):
        bare = line.rstrip("\r\n")
        bound = _BOUND.match(bare)
        indent = bare[: len(bare) - len(bare.lstrip())]
        if continues:
            lines[number] = "#" + line
        elif number in inside:
            continue
        elif bound is not None:
            end = bound.end("bound")
            lines[number] = f"{line[:end]} {_UNKNOWN}  # {line[end:].lstrip()}"
        elif _ESCAPE.match(bare) or number not in commented and number + 1 not in inside and _asks(bare):
            lines[number] = f"{indent}pass  # {line[len(indent) :]}"
        else:
            continue
        continues = bare.endswith("\\")
    return "".join(lines)


def _asks(line: str) -> bool:
    return line.rstrip().endswith("?") and _HELP.search(line.rstrip()[-_HELP_WIDTH:]) is not None


def _lines_inside(code: str) -> tuple[set[int], set[int]]:
    """The lines (from 0) that begin inside a string or a bracket, where no magic can start; those with a comment."""
    inside: set[int] = set()
    commented: set[int] = set()
    line = depth = 0
    for token in _TOKEN.finditer(code):
        if token.lastgroup == "string":
            inner = len(line_starts(token[0])) - 1
            inside.update(range(line + 1, line + inner + 1))
            line += inner
        elif token.lastgroup in ("line", "joint"):
            line += 1
            if depth or token.lastgroup == "joint":
                inside.add(line)
        elif token.lastgroup == "comment":
            commented.add(line)
        elif token.lastgroup == "open":
            depth += 1
        elif token.lastgroup == "close":
            depth = max(depth - 1, 0)
    return inside, commented


# -- cells that do not parse

_GOES_ON = re.compile(r"[\s)\]}]|(?:else|elif|except|finally|case)\b")
_MANY_PARTS = 500


def salvaged(code: str) -> str:
    """Of a cell that does not parse the statements that do, line for line; names that others bind are unknown."""
    whole = "".join(part if parses(part) else _unknown(part) for part in _parts(code))
    return whole if parses(whole) else _unknown(code)


def _unknown(code: str) -> str:
    """As many lines, in which whatever the code may bind is bound to nobody knows what."""
    names = sorted({name for name in _bound(code) if name.isidentifier() and not keyword.iskeyword(name)})
    bound = "; ".join(f"{name} = {_UNKNOWN}" for name in names)
    # Never empty: a line feed behind the carriage return of the part above would be one line's end.
    return (bound or "pass") + "\n" * (len(line_starts(code)) - 1)


def _parts(code: str) -> Iterator[str]:
    """The cell cut where a statement may begin; each part has whole lines."""
    lines = _LINE.findall(code)
    part: list[str] = []
    number = 0
    for line in lines:
        begins = not _GOES_ON.match(line) and not (part and part[-1].startswith("@"))
        if begins and part and number < _MANY_PARTS:
            yield "".join(part)
            part = []
            number += 1
        part.append(line)
    yield "".join(part)


_EQUALS = re.compile(r"(?<![=!<>:])=(?!=)")
_BRACKETS = re.compile(r"\[[^\[\]]*\]")
_HEAD = re.compile(r"\s*(?:if|elif|else|for|while|with|try|finally|except)\b")
_CALL = re.compile(r"\w\s*\(")
_NAME = re.compile(r"(?<![\w.])[^\W\d]\w*")
_NAMED = re.compile(r"\b(?:def|class|as|del|global|nonlocal)\s+([^\W\d]\w*)|([^\W\d]\w*)\s*:=")
_LOOP = re.compile(r"\bfor\s+([\w ,*()]+?)\s+in\b")
_IMPORT = re.compile(r"\bimport\s+([^;]*)")
_CHANGED = re.compile(
    r"(?<![\w.])([^\W\d]\w*)(?:\.\w+|\[[^\[\]]*\])*"
    r"\.(?:update|setdefault|set_defaults|pop|popitem|append|extend|insert|add|clear|remove|add_argument)\s*\("
)


def _bound(code: str) -> Iterator[str]:
    """The names that code which does not parse may bind or change: too many of them rather than too few."""
    for line in _TOKEN.sub(_blank, code).splitlines():
        for statement in line.split(";"):
            yield from _targets(statement)
            yield from (name for match in _NAMED.finditer(statement) for name in match.groups() if name)
            yield from (name for match in _LOOP.finditer(statement) for name in _NAME.findall(match[1]))
            yield from (name for match in _IMPORT.finditer(statement) for name in _NAME.findall(match[1]))
            yield from (match[1] for match in _CHANGED.finditer(statement))


def _blank(token: re.Match[str]) -> str:
    if token.lastgroup == "comment":
        return ""
    return '""' + "\n" * (len(line_starts(token[0])) - 1) if token.lastgroup == "string" else token[0]


def _targets(statement: str) -> Iterator[str]:
    """``a`` and ``b`` of ``a = b.c[0] = value``; a call is no target, but has arguments with names."""
    *sides, _ = _EQUALS.split(statement)
    for side in sides:
        before, _, behind = side.partition(":")
        target = _BRACKETS.sub("", behind if _HEAD.match(before) else before)
        if not _CALL.search(target):
            yield from _NAME.findall(target)
