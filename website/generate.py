"""All pages of the site that are made, not written. Nothing here needs mkdocs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from dlcheck import pages
from website import commands, figures, links, proofs, rules, settings

ROOT = Path(__file__).resolve().parent.parent

# The order of what is written in docs/; what is not named here comes after it, under "More".
SECTIONS: dict[str, tuple[str, ...]] = {
    "How it works": ("understanding.md", "architecture.md", "measure.md", "measure-gpu.md", "records.md"),
    "Is it right?": ("ecosystem.md", "proofs.md", "reliability.md", "benchmarks.md"),
    "Guides": ("usage.md", "advise.md", "tune.md", "ci.md", "editors.md", "versions.md"),
}
PROJECT = ("contributing.md", "changelog.md")


def written() -> list[str]:
    """The pages in docs/, as the site names them."""
    folder = ROOT / "docs"
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.md"))


def generated() -> dict[str, str]:
    """The Markdown of each page that does not lie in docs/, by its place in the site."""
    known = pages.load()
    names = {code: f"rules/{rules.file_name(page)}" for code, page in known.items()}
    found = {
        "rules/index.md": rules.index(known),
        "commands/index.md": commands.index(),
        "configuration.md": settings.markdown(known, names),
        "proofs.md": proofs.markdown(known, names),
    }
    found.update({names[code]: rules.markdown(page) for code, page in known.items()})
    for command in commands.names():
        found[f"commands/{command}.md"] = commands.markdown(command)
    for source, place in links.PLACES.items():
        if source.endswith(".md") and place not in found:
            found[place] = document((ROOT / source).read_text(encoding="utf-8"), source)
    return found


def document(text: str, source: str) -> str:
    """A document of the repository as a page: its links, its drawings, its folded parts; what only tests read goes."""
    text = re.sub(r"^<!-- (?:run|then|not run)\b[^\n]*-->\n", "", text, flags=re.MULTILINE)
    text = text.replace("<details>", '<details markdown="1">')
    return figures.inserted(links.rewritten(text, source, links.place(source) or source))


def navigation(made: dict[str, str]) -> list[Any]:
    """The menu: sections of pages."""
    there = {*written(), *made}
    placed = {"index.md", "tutorial.md", "configuration.md", *PROJECT}
    guides: list[Any] = []
    for title, names in SECTIONS.items():
        guides.append({title: [name for name in names if name in there]})
        placed.update(names)
    rest = [name for name in written() if name not in placed]
    if rest:
        guides.append({"More": rest})
    reference = ["commands/index.md", *(f"commands/{name}.md" for name in commands.names())]
    return [
        {"Start": ["index.md", "tutorial.md"]},
        {"Rules": ["rules/index.md", *_families()]},
        {"Reference": ["configuration.md", {"Commands": reference}]},
        *guides,
        {"Project": list(PROJECT)},
    ]


def _families() -> list[dict[str, list[dict[str, str]]]]:
    known = pages.load().values()
    return [
        {
            title: [
                {f"{page.code} {page.name}": f"rules/{rules.file_name(page)}"}
                for page in known
                if page.code[3] == digit
            ]
        }
        for digit, title in rules.FAMILIES.items()
    ]
