"""Which open files are checked again after a pause in typing."""

from __future__ import annotations

from pathlib import Path

import pytest
from lsprotocol import types

from dlcheck.lsp import server
from dlcheck.lsp.checking import Checked


@pytest.mark.parametrize(
    ("read", "again"),
    [
        ({"a": "a", "b": "b c", "c": "c"}, "c"),
        ({"a": "a b", "b": "b", "c": "c"}, "a"),  # as a caller, or by what it imports
        ({"a": "a", "b": "b", "c": "c"}, ""),
        ({"a": "a", "c": "c"}, "a c"),  # nothing is known of what was typed in
        ({"b": "b", "c": "c"}, "a"),
    ],
)
def test_what_depends_on_a_change(
    read: dict[str, str], again: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was typed in is b; ``read`` says for each file which were read when it was checked last."""
    made = server.create()
    monkeypatch.setattr(made, "_start", lambda: None)
    monkeypatch.setattr(made, "ask_to_pull", lambda: None)
    addresses = {name: (tmp_path / f"{name}.py").as_uri() for name in "abc"}
    for uri in addresses.values():
        made.documents.open(types.TextDocumentItem(uri=uri, language_id="python", version=1, text=""))
    for name, names in read.items():
        files = frozenset(str(tmp_path / f"{one}.py") for one in names.split())
        made.checked[addresses[name]] = Checked(1, read=files)
    made.check_others(addresses["b"])
    left = {name for name, uri in addresses.items() if uri not in made.checked}
    assert left & read.keys() - {"b"} == set(again.split()) & read.keys()
    assert made.waiting == [addresses[name] for name in again.split()]
