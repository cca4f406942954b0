"""The language server as Visual Studio Code sees it, and as a Neovim does that counts in UTF-8."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_lsp
from editing import LOAD, TRAIN, Editor, edited, edits_of, opened, whole
from lsprotocol import types
from pygls import uris
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

from dlcheck import config, engine
from dlcheck.findings import Finding
from dlcheck.measure import store
from dlcheck.measure.record import Effect, Location, Metric, Record

SERVER = [sys.executable, "-m", "dlcheck", "lsp"]
pytestmark = [pytest.mark.slow, pytest.mark.asyncio]


@pytest_lsp.fixture(  # type: ignore[untyped-decorator]
    params=["neovim", "visual-studio-code"], config=ClientServerConfig(server_command=SERVER)
)
async def client(request: pytest.FixtureRequest, lsp_client: LanguageClient, tmp_path: Path) -> AsyncIterator[None]:
    """A client that has opened a project of two files."""
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "load.py").write_text(LOAD, encoding="utf-8")
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")

    @lsp_client.feature(types.CLIENT_REGISTER_CAPABILITY)  # type: ignore[untyped-decorator]
    def register(_client: LanguageClient, params: types.RegistrationParams) -> None:
        (one,) = params.registrations
        assert one.method == types.WORKSPACE_DID_CHANGE_WATCHED_FILES
        options: Any = one.register_options
        patterns = {watcher["globPattern"] for watcher in options["watchers"]}
        assert patterns >= {"**/*.py", "**/*.ipynb", "**/pyproject.toml", "**/dlcheck.toml"}
        assert patterns >= {"**/.dlcheck/measurements/*.json", "**/.dlcheck/measurements", "**/.dlcheck"}

    folders = [types.WorkspaceFolder(tmp_path.as_uri(), "project")]
    params = types.InitializeParams(capabilities=client_capabilities(request.param), workspace_folders=folders)
    answer = await lsp_client.initialize_session(params)
    assert answer.capabilities.position_encoding == ("utf-8" if request.param == "neovim" else "utf-16")
    yield
    await lsp_client.shutdown_session()


@pytest.fixture
def editor(client: LanguageClient, tmp_path: Path) -> Editor:
    offered = client.capabilities.general if client.capabilities is not None else None
    utf8 = offered is not None and offered.position_encodings is not None
    return Editor(client, tmp_path, "utf-8" if utf8 else "utf-16")


async def test_findings_come_with_all_that_an_editor_shows(editor: Editor) -> None:
    train = editor.folder / "train.py"
    editor.client.text_document_did_open(opened(train, TRAIN))
    (found,) = await editor.shows(train, ("DLC101", 8))
    line = TRAIN.splitlines()[8]
    start, end = line.index("x.cuda()"), line.index("  # größer")
    assert found.range.start.character == editor.units(line[:start])
    assert found.range.end.character == editor.units(line[:end])
    assert found.severity == types.DiagnosticSeverity.Warning
    assert found.source == "dlcheck"
    assert "blocks although `DataLoader` pins its batches" in found.message
    (related,) = found.related_information or ()
    assert related.location.uri == (editor.folder / "load.py").as_uri()
    assert related.location.range.start.line == 4
    assert related.message == "pinned here"


async def test_a_fix_is_an_edit_of_the_buffer(editor: Editor) -> None:
    train = editor.folder / "train.py"
    editor.client.text_document_did_open(opened(train, "\n" + TRAIN))
    (found,) = await editor.shows(train, ("DLC101", 9))
    actions = await editor.actions(train.as_uri(), found.range)
    assert list(actions) == [
        "dlcheck: Add `non_blocking=True`",
        "dlcheck: ignore DLC101 here",
        "dlcheck: show DLC101 (blocking-transfer-of-pinned-batch)",
        "dlcheck: apply all safe fixes (1)",
    ]
    fixed = "\n" + TRAIN.replace("x.cuda()", "x.cuda(non_blocking=True)")
    for title in ("dlcheck: Add `non_blocking=True`", "dlcheck: apply all safe fixes (1)"):
        edits = edits_of(actions[title], train.as_uri())
        assert editor.applied("\n" + TRAIN, edits) == fixed
    assert actions["dlcheck: Add `non_blocking=True`"].is_preferred
    silenced = editor.applied("\n" + TRAIN, edits_of(actions["dlcheck: ignore DLC101 here"], train.as_uri()))
    assert silenced == "\n" + TRAIN.replace("# größer\n    ", "# größer  # dlcheck: ignore[DLC101]\n    ")
    editor.client.text_document_did_change(edited(train, 2, whole(silenced)))
    await editor.shows(train)
    only = await editor.actions(train.as_uri(), found.range, "source.fixAll")
    assert list(only) == []


async def test_typing_moves_what_was_found(editor: Editor) -> None:
    train = editor.folder / "train.py"
    editor.client.text_document_did_open(opened(train, TRAIN))
    await editor.shows(train, ("DLC101", 8))
    top = types.Range(types.Position(0, 0), types.Position(0, 0))
    new = types.TextDocumentContentChangePartial(range=top, text="# 🐍\r\n")
    editor.client.text_document_did_change(edited(train, 2, new))
    await editor.shows(train, ("DLC101", 9))
    snakes = editor.units('        "🐍🐍"; x = x.cuda(')
    call = types.Range(types.Position(9, snakes), types.Position(9, snakes))
    typed = types.TextDocumentContentChangePartial(range=call, text="non_blocking=True")
    editor.client.text_document_did_change(edited(train, 3, typed))
    await editor.shows(train)


async def test_half_typed_text_keeps_what_still_applies(editor: Editor) -> None:
    train = editor.folder / "train.py"
    editor.client.text_document_did_open(opened(train, TRAIN))
    await editor.shows(train, ("DLC101", 8))
    broken = TRAIN.replace("def train(", "x = (\n\n\ndef train(")
    editor.client.text_document_did_change(edited(train, 2, whole(broken)))
    found = await editor.shows(train, ("DLC001", 5), ("DLC101", 11))
    actions = await editor.actions(train.as_uri(), found[1].range)
    assert list(actions) == ["dlcheck: show DLC101 (blocking-transfer-of-pinned-batch)"]
    editor.client.text_document_did_change(edited(train, 3, whole(broken.replace("x = x.cuda()", "x = x.cuda(("))))
    await editor.shows(train, ("DLC001", 8))
    editor.client.text_document_did_change(edited(train, 4, whole(TRAIN)))
    await editor.shows(train, ("DLC101", 8))


async def test_another_open_file_counts_as_it_is_in_its_buffer(editor: Editor) -> None:
    train, load = editor.folder / "train.py", editor.folder / "load.py"
    editor.client.text_document_did_open(opened(train, TRAIN))
    await editor.shows(train, ("DLC101", 8))
    editor.client.text_document_did_open(opened(load, LOAD))
    editor.client.text_document_did_change(edited(load, 2, whole(LOAD.replace(", pin_memory=True", ""))))
    await editor.shows(load, ("DLC103", 4))
    await editor.shows(train)
    editor.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(load.as_uri())))
    await editor.shows(train, ("DLC101", 8))
    await editor.shows(load)


async def test_hover_is_the_page(editor: Editor) -> None:
    train = editor.folder / "train.py"
    editor.client.text_document_did_open(opened(train, TRAIN))
    (found,) = await editor.shows(train, ("DLC101", 8))
    asked = types.HoverParams(types.TextDocumentIdentifier(train.as_uri()), found.range.start)
    hover = await editor.client.text_document_hover_async(asked)
    assert hover is not None
    assert isinstance(hover.contents, types.MarkupContent)
    assert hover.contents.value.startswith("**DLC101** blocking-transfer-of-pinned-batch: `x.cuda()` blocks")
    assert "## Why is this bad?" in hover.contents.value
    elsewhere = types.HoverParams(types.TextDocumentIdentifier(train.as_uri()), types.Position(0, 0))
    assert await editor.client.text_document_hover_async(elsewhere) is None


async def test_the_page_of_a_rule_is_shown(editor: Editor) -> None:
    asked = types.ExecuteCommandParams("dlcheck.showRule", arguments=["DLC101"])
    await editor.client.workspace_execute_command_async(asked)
    await editor.until(lambda: bool(editor.client.shown_documents))
    path = uris.to_fs_path(editor.client.shown_documents[0].uri)
    assert path is not None
    assert Path(path).read_text(encoding="utf-8").startswith("# blocking-transfer-of-pinned-batch (DLC101)")


async def test_settings_are_those_of_the_configuration_file(editor: Editor) -> None:
    train = editor.folder / "train.py"
    editor.client.text_document_did_open(opened(train, TRAIN))
    await editor.shows(train, ("DLC101", 8))
    change = types.DidChangeConfigurationParams(settings={"dlcheck": {"extendIgnore": ["DLC101"]}})
    editor.client.workspace_did_change_configuration(change)
    await editor.shows(train)
    editor.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings={"dlcheck": {}}))
    await editor.shows(train, ("DLC101", 8))
    wrong = types.DidChangeConfigurationParams(settings={"dlcheck": {"minConfidence": "certain"}})
    editor.client.workspace_did_change_configuration(wrong)
    await editor.until(lambda: any("min-confidence" in one.message for one in editor.client.messages))


async def test_a_changed_configuration_file_counts_at_once(editor: Editor) -> None:
    train, project = editor.folder / "train.py", editor.folder / "pyproject.toml"
    editor.client.text_document_did_open(opened(train, TRAIN))
    await editor.shows(train, ("DLC101", 8))
    project.write_text('[tool.dlcheck]\nextend-ignore = ["DLC101"]\n', encoding="utf-8")
    event = types.FileEvent(project.as_uri(), types.FileChangeType.Changed)
    editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([event]))
    await editor.shows(train)
    project.write_text("[tool.dlcheck]\nextend-ignor = []\n", encoding="utf-8")
    editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([event]))
    await editor.until(lambda: any("unknown key `extend-ignor`" in one.message for one in editor.client.messages))
    project.write_text("", encoding="utf-8")
    editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([event]))
    await editor.shows(train, ("DLC101", 8))


def measured(finding: Finding, root: Path, saved_s: float) -> Record:
    """A record such as measuring a finding leaves behind."""
    effect = Effect(0.5, 0.5 - saved_s, 1 - 2 * saved_s, (0.5, 0.9), saved_s, (0.1, 0.3), 0.95, "rounds", 5, 1)
    path = store.path_below(finding.place.path, str(root))
    return Record(
        id="one",
        code=finding.code,
        rule=finding.rule,
        fingerprint=store.key(finding, str(root)),
        location=Location(path, finding.place.line, 1, statement=store.statement_hash(finding)),
        verdict="confirmed",
        reason="it saves time",
        evidence="synthetic",
        experiment="epoch",
        date="2026-01-02T03:04:05Z",
        metric=Metric("epoch wall time", "s/epoch", "additive"),
        effect=effect,
    )


async def test_what_was_measured_shows_as_soon_as_there_is_a_record(editor: Editor) -> None:
    train = editor.folder / "train.py"
    editor.client.text_document_did_open(opened(train, TRAIN))
    (before,) = await editor.shows(train, ("DLC101", 8))
    assert "Measured" not in before.message
    (finding,) = engine.check([str(train)], config.load(str(editor.folder))).findings
    folder = editor.folder / ".dlcheck"
    for change, saved_s in ((types.FileChangeType.Created, 0.2), (types.FileChangeType.Changed, 0.1)):
        file = Path(store.save(str(editor.folder), measured(finding, editor.folder, saved_s)))
        # What comes with a new folder is often not told: only the folder is.
        told = folder if change is types.FileChangeType.Created else file
        event = types.FileEvent(told.as_uri(), change)
        editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([event]))
        said = f"confirmed, saves {saved_s * 1000:.0f} ms per epoch"
        await editor.says(train, f"{before.message}\nMeasured: here on 2 Jan 2026: {said}")
    shutil.rmtree(folder)
    gone = types.FileEvent(folder.as_uri(), types.FileChangeType.Deleted)
    editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([gone]))
    await editor.says(train, before.message)


async def test_each_folder_of_a_workspace_has_its_own_configuration(editor: Editor) -> None:
    text = LOAD + TRAIN.replace("from load import load\n", "")
    for name, ignored in (("one", '"DLC101"'), ("two", "")):
        (editor.folder / name).mkdir()
        (editor.folder / name / "dlcheck.toml").write_text(f"extend-ignore = [{ignored}]\n", encoding="utf-8")
        editor.client.text_document_did_open(opened(editor.folder / name / "train.py", text))
    await editor.shows(editor.folder / "two" / "train.py", ("DLC101", 12))
    await editor.shows(editor.folder / "one" / "train.py")


async def test_a_configuration_file_that_comes_and_goes_counts(editor: Editor) -> None:
    train, own = editor.folder / "train.py", editor.folder / "dlcheck.toml"
    editor.client.text_document_did_open(opened(train, TRAIN))
    await editor.shows(train, ("DLC101", 8))
    editor.saves(own, 'extend-ignore = ["DLC101"]\n')
    await editor.shows(train)
    own.unlink()
    editor.tells(own, types.FileChangeType.Deleted)
    await editor.shows(train, ("DLC101", 8))


async def test_another_file_counts_as_it_is_on_disk(editor: Editor) -> None:
    train, load = editor.folder / "train.py", editor.folder / "load.py"
    editor.client.text_document_did_open(opened(train, TRAIN))
    await editor.shows(train, ("DLC101", 8))
    editor.saves(load, LOAD.replace(", pin_memory=True", ""))
    await editor.shows(train)
    editor.saves(load, LOAD)
    await editor.shows(train, ("DLC101", 8))


async def test_what_has_no_effect_is_faded_and_weighs_less(editor: Editor) -> None:
    file = editor.folder / "cpu.py"
    text = TRAIN.replace("x.cuda()", 'x.to("cpu")')
    editor.client.text_document_did_open(opened(file, text))
    load = editor.folder / "load.py"
    editor.client.text_document_did_open(opened(load, f"{LOAD}x = (\n"))
    (broken,) = await editor.shows(load, ("DLC001", 5))
    assert broken.severity == types.DiagnosticSeverity.Error
    assert broken.tags is None
    editor.client.text_document_did_change(edited(load, 2, whole(LOAD)))
    (faded,) = await editor.shows(load, ("DLC108", 4))
    assert faded.severity == types.DiagnosticSeverity.Information
    assert list(faded.tags or ()) == [types.DiagnosticTag.Unnecessary]


async def test_folders_of_a_workspace_come_and_go(editor: Editor, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "dlcheck.toml").write_text("", encoding="utf-8")
    (other / "load.py").write_text(LOAD.replace(", pin_memory=True", ""), encoding="utf-8")
    folder = types.WorkspaceFolder(other.as_uri(), "other")
    for added, removed in (([folder], []), ([], [folder])):
        event = types.WorkspaceFoldersChangeEvent(added, removed)
        editor.client.workspace_did_change_workspace_folders(types.DidChangeWorkspaceFoldersParams(event))
    editor.client.text_document_did_open(opened(editor.folder / "train.py", TRAIN))
    editor.client.text_document_did_open(opened(other / "train.py", TRAIN))
    await editor.shows(editor.folder / "train.py", ("DLC101", 8))  # each takes the `load` beside it
    await editor.shows(other / "train.py")


async def test_what_was_never_saved_is_checked(editor: Editor) -> None:
    text = LOAD + TRAIN.replace("from load import load\n", "")
    item = types.TextDocumentItem(uri="untitled:Untitled-1", language_id="python", version=1, text=text)
    editor.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
    await editor.shows("untitled:Untitled-1", ("DLC101", 12))


NOTEBOOK = [
    "import torch\nfrom torch.utils.data import DataLoader",
    "# Loading",
    "%matplotlib inline\nloader = DataLoader(torch.arange(9), num_workers=2, pin_memory=True)",
    "for x in loader:\n    x = x.cuda()\n    net(x).backward()",
]
CODE, MARKUP = types.NotebookCellKind.Code, types.NotebookCellKind.Markup


async def test_a_notebook_is_checked_cell_by_cell(editor: Editor) -> None:
    uri = (editor.folder / "train.ipynb").as_uri()
    kinds = [
        types.NotebookCellKind.Markup if text.startswith("# ") else types.NotebookCellKind.Code for text in NOTEBOOK
    ]
    cells = [types.NotebookCell(kind, f"{uri}#{n}") for n, kind in enumerate(kinds)]
    items = [types.TextDocumentItem(f"{uri}#{n}", "python", 1, text) for n, text in enumerate(NOTEBOOK)]
    notebook = types.NotebookDocument(uri, "jupyter-notebook", 1, cells)
    editor.client.notebook_document_did_open(types.DidOpenNotebookDocumentParams(notebook, items))
    (found,) = await editor.shows(f"{uri}#3", ("DLC101", 1))
    actions = await editor.actions(f"{uri}#3", found.range)
    edits = edits_of(actions["dlcheck: Add `non_blocking=True`"], f"{uri}#3")
    assert editor.applied(NOTEBOOK[3], edits) == NOTEBOOK[3].replace("cuda()", "cuda(non_blocking=True)")
    every = edits_of(actions["dlcheck: apply all safe fixes (1)"], f"{uri}#3")
    assert editor.applied(NOTEBOOK[3], every) == editor.applied(NOTEBOOK[3], edits)
    named = types.VersionedTextDocumentIdentifier(version=2, uri=f"{uri}#2")
    text = types.NotebookDocumentCellContentChanges(named, [whole(NOTEBOOK[2].replace("pin_memory=True", ""))])
    change = types.NotebookDocumentChangeEvent(cells=types.NotebookDocumentCellChanges(text_content=[text]))
    version = types.VersionedNotebookDocumentIdentifier(version=2, uri=uri)
    editor.client.notebook_document_did_change(types.DidChangeNotebookDocumentParams(version, change))
    await editor.shows(f"{uri}#3")
    await editor.shows(f"{uri}#2", ("DLC103", 1))


async def test_the_cells_around_a_broken_one_keep_their_findings(editor: Editor) -> None:
    uri = (editor.folder / "train.ipynb").as_uri()
    cells = [types.NotebookCell(CODE, f"{uri}#{n}") for n in (0, 2, 3)]
    items = [types.TextDocumentItem(cell.document, "python", 1, NOTEBOOK[int(cell.document[-1])]) for cell in cells]
    notebook = types.NotebookDocument(uri, "jupyter-notebook", 1, cells)
    editor.client.notebook_document_did_open(types.DidOpenNotebookDocumentParams(notebook, items))
    await editor.shows(f"{uri}#3", ("DLC101", 1))
    named = types.VersionedTextDocumentIdentifier(version=2, uri=f"{uri}#0")
    text = types.NotebookDocumentCellContentChanges(named, [whole(f"{NOTEBOOK[0]}\nnet = Net(")])
    change = types.NotebookDocumentChangeEvent(cells=types.NotebookDocumentCellChanges(text_content=[text]))
    version = types.VersionedNotebookDocumentIdentifier(version=2, uri=uri)
    editor.client.notebook_document_did_change(types.DidChangeNotebookDocumentParams(version, change))
    await editor.shows(f"{uri}#0", ("DLC001", 2))
    await editor.shows(f"{uri}#3", ("DLC101", 1))
