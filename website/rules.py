"""The pages of the rules: a table in place of the block of TOML, and nothing of what only tests read."""

from __future__ import annotations

from collections.abc import Iterator

from dlcheck.pages import Page
from website import links, proofs

FAMILIES = {
    "0": "The files and comments themselves",
    "1": "Transfer and pinning",
    "2": "Workers",
    "3": "Datasets",
    "4": "Sampling and randomness",
    "5": "Training loop",
    "6": "Start methods and portability",
    "7": "Frameworks",
}


def file_name(page: Page) -> str:
    return f"{page.code}-{page.name}.md"


def family(page: Page) -> str:
    """The title of a rule's family."""
    return FAMILIES[page.code[3]]


def markdown(page: Page) -> str:
    """The page of a rule, in the order of `dlcheck rule`."""
    file = f"rules/{file_name(page)}"
    return "\n".join((
        f"# {page.name} ({page.code})",
        "",
        f"{page.summary}.",
        "",
        *_table(page),
        "",
        *_also(page),
        links.rewritten(page.documentation, file, file),
        *_options(page),
        *_proof(page),
        *_references(page),
    ))  # fmt: skip


def index(known: dict[str, Page]) -> str:
    """All rules, family by family."""
    lines = [
        "# Rules",
        "",
        f"{len(known)} rules, each with what it finds, why that is bad, what to do instead, and when to leave it out.",
        "In the terminal, `dlcheck rule CODE` shows the same page. Each example on these pages is a test.",
        "",
        "*Severity* lists a rule's own first, then those of its variants. A rule that is *off* speaks where it is",
        "selected (`--extend-select`). *Fix* says whether its findings offer an edit, and whether that is safe;",
        "*measure*, which kind of [experiment](../measure.md#what-is-compared) can confirm or refute it.",
    ]
    for digit, title in FAMILIES.items():
        lines += [
            "",
            f"## {title}",
            "",
            "| rule | what it finds | severity | default | fix | measure |",
            "|" + " --- |" * 6,
        ]
        lines += [_row(page) for page in known.values() if page.code[3] == digit]
    return "\n".join([*lines, ""])


def _row(page: Page) -> str:
    link = f"[{page.code}<br>{page.name}]({file_name(page)})"
    default = "on" if page.default else "off"
    return (
        f"| {link} | {page.summary} | {', '.join(page.severities)} | {default} | {page.fix} | {page.measure or 'no'} |"
    )


def _table(page: Page) -> Iterator[str]:
    measured = f"[{page.measure}](../measure.md#what-is-compared)" if page.measure else "no"
    yield "| severity | confidence | default | fix | measured by | since |"
    yield "|" + " --- |" * 6
    default = "on" if page.default else "off"
    yield f"| {', '.join(page.severities)} | {page.confidence} | {default} | {page.fix} | {measured} | {page.since} |"


def _also(page: Page) -> Iterator[str]:
    """Its messages, with how its variants differ."""
    yield "What it says:"
    yield ""
    for name in ("", *page.variants):
        said = page.variant(name)
        differs = [
            f"{what} {value}"
            for what, value, own in (
                ("severity", said.severity, page.severity),
                ("confidence", said.confidence, page.confidence),
                ("fix", said.fix, page.fix),
            )
            if value != own
        ]
        yield f"- {said.message}" + (f" ({', '.join(differs)})" if differs else "")
    yield ""


def _options(page: Page) -> Iterator[str]:
    if page.options:
        yield "## Options"
        yield ""
        yield f"In `[tool.dlcheck.rules.{page.code}]` ([configuration](../configuration.md#rules)):"
        yield ""
        for option in page.options.values():
            yield f"- `{option.name}` (default `{option.default!r}`): {option.help}"
        yield ""


def _proof(page: Page) -> Iterator[str]:
    shown = proofs.proven().get(page.code, ())
    reason = proofs.not_on_a_cpu().get(page.code)
    if shown or reason:
        yield "## Shown by running"
        yield ""
        yield (
            "What it finds was made to happen with real torch, and not to happen, in:"
            if shown
            else f"Not yet: {reason}"
        )
        yield ""
        yield from (f"- `{one}`" for one in shown)
        yield ""


def _references(page: Page) -> Iterator[str]:
    if page.references:
        yield "## References"
        yield ""
        yield from (f"- <{reference}>" for reference in page.references)
        yield ""
