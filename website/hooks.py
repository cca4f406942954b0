"""What mkdocs calls while it builds: the pages that are made come to those that are written."""

from __future__ import annotations

import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # mkdocs runs this file by its path; it is to find the rules of this checkout

from dlcheck.measure import page as report_page  # noqa: E402
from website import figures, generate  # noqa: E402


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = generate.navigation(generate.generated())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for place, text in generate.generated().items():
        files.append(File.generated(config, place, content=text))
    files.append(File.generated(config, figures.REPORT, content=report_page.render([figures.record()])))
    style = str(ROOT / "website" / "site.css")
    files.append(File.generated(config, "site.css", abs_src_path=style))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    del config, files
    if page.file.generated_by:
        return markdown
    return generate.document(markdown, f"docs/{page.file.src_uri}")
