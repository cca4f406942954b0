"""Where documents of the repository lie in the site, and their links made to lead there."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Documents outside docs/ and rules/ that are pages of the site.
PLACES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
    "editors/README.md": "editors.md",
    "rules/README.md": "rules/index.md",
    "rules": "rules/index.md",
}

LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^()\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//")


def place(path: str) -> str | None:
    """Where a file of the repository lies in the site: `docs/advise.md` at `advise.md`; None where it does not."""
    if path in PLACES:
        return PLACES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path if path.startswith("rules/") else None


def parts(text: str) -> list[tuple[bool, str]]:
    """A text in stretches, and whether each is words, not code.

    Code within the text of a link belongs to the link; code that shows a link is none.
    """
    found: list[tuple[bool, str]] = []
    at = 0
    for fence in [*FENCE.finditer(text), None]:
        words = text[at : fence.start() if fence else len(text)]
        before = 0
        for code in CODE.finditer(words):
            if "](" in code[0]:
                found += [(True, words[before : code.start()]), (False, code[0])]
                before = code.end()
        found.append((True, words[before:]))
        if fence:
            found.append((False, fence[0]))
            at = fence.end()
    return found


def relative(text: str) -> list[str]:
    """The targets of a document's links that lead to files of the repository, or to anchors."""
    words = "".join(part for is_words, part in parts(text) if is_words)
    return [found["target"] for found in LINK.finditer(words) if not ELSEWHERE.match(found["target"])]


def rewritten(text: str, source: str, page: str) -> str:
    """A document of the repository as a page of the site; what is no part of the site is named, and leads nowhere."""
    return "".join(LINK.sub(_to_page(source, page), part) if is_words else part for is_words, part in parts(text))


def _to_page(source: str, page: str) -> Callable[[re.Match[str]], str]:
    def link(found: re.Match[str]) -> str:
        path, hash_, anchor = found["target"].partition("#")
        if ELSEWHERE.match(found["target"]) or not path:
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        to = place(path)
        if to is None:
            return _name(found["text"], path)
        to = posixpath.relpath(to, posixpath.dirname(page) or ".")
        return f"{found['image']}[{found['text']}]({to}{hash_}{anchor})"

    return link


def _name(text: str, path: str) -> str:
    """In place of a link: the text, and the path where the text does not say it."""
    if text.strip("`").rstrip("/") in path:
        return f"`{path}`"
    return f"{text} (`{path}`)"


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as hosts of repositories and the site make them.

    Those that they number, because a heading comes twice, are left out: each numbers in a way of its own.
    """
    titles = re.findall(r"^#{1,6} +(.*?)\s*#*$", FENCE.sub("", text), re.MULTILINE)
    return {slug_of(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)) for title in titles}


def slug_of(title: str, separator: str = "-") -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", separator)
