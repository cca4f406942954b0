"""``dlcheck config`` and ``dlcheck clean``: what a project has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import date, time
from typing import Any

import click

from dlcheck import files, pages
from dlcheck.cli.options import configuring
from dlcheck.cli.settings import configured
from dlcheck.cli.speaking import Fault, say, tell
from dlcheck.config import KEYS, common_folder


@click.command("config")
@click.argument("path", default=".", type=click.Path(readable=False))
@configuring
@click.option("--output-format", "form", type=click.Choice(("text", "json")), default="text")
def config_command(path: str, form: str, **options: Any) -> None:
    """Show the configuration that is in force for a file or folder, and where each setting comes from."""
    if files.is_missing(path):
        raise Fault(f"{path}: {files.MISSING}")
    config = configured([path], options)
    root = files.root_of(common_folder([path])) or config.root
    rows = {key: config.setting(key) for key in KEYS}
    codes = sorted(config.codes(pages.load()))
    targets = {what: config.target(root, what) for what in ("torch", "python")}
    if form == "json":
        import json

        table = {key: {"value": row.value, "origin": row.origin} for key, row in rows.items()}
        versions = {what: {"declared": told.text or None, "origin": told.origin} for what, told in targets.items()}
        whole = {"file": config.file and files.shown(config.file), "settings": table, "rules": codes}
        say(json.dumps({**whole, "targets": versions}, indent=2, default=str))  # TOML has dates, JSON has none
        return
    tell(f"file: {files.shown(config.file) if config.file else 'none'}")
    tell(f"project: {files.shown(root)}")
    for key, row in rows.items():
        if row.value is not None:
            tell(f"{key} = {_toml_value(row.value)}  # {row.origin}")
    for what, told in targets.items():
        tell(f"{what}: {told.text or ('current' if what == 'torch' else 'any')}  # {told.origin}")
    say(f"rules: {' '.join(codes) or 'none'}")


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (date, time)):  # also of an option of a rule of the user's own
        return value.isoformat()
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_value(key)} = {_toml_value(item)}" for key, item in value.items()) + " }"
    return "[" + ", ".join(_toml_value(item) for item in value) + "]"


@click.command()
@click.argument("path", default=".", type=click.Path(exists=True, file_okay=False))
def clean(path: str) -> None:
    """Delete the cache of a project."""
    from dlcheck.cache import FOLDER, is_ours

    folder = os.path.abspath(path)
    cache = os.path.join(files.root_of(folder) or folder, FOLDER)
    if not is_ours(cache):
        say("Nothing to delete.")
        return
    import shutil

    try:
        shutil.rmtree(cache)
    except OSError as error:
        raise Fault(f"{files.shown(cache)}: {error.strerror or error}") from None
    tell(f"Deleted {files.shown(cache)}.")
