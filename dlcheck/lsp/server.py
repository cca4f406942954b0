"""The language server: what the protocol asks is answered from what was checked last."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lsprotocol import types
from pygls import uris
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from dlcheck import __version__, config, files, pages
from dlcheck.fixing import Fixed
from dlcheck.lsp import actions, converting
from dlcheck.lsp.checking import Checked, Checker
from dlcheck.lsp.converting import Converter
from dlcheck.lsp.documents import Document, Documents
from dlcheck.lsp.garbage import Garbage
from dlcheck.warm import Interrupted

# Other open files are checked again after a pause in typing: they matter less than the one that is typed in.
OTHERS_AFTER_S = 0.4
# A first check that takes longer than this shows that it is running.
PROGRESS_AFTER_S = 0.7
_CONFIGURATION = ("pyproject.toml", "dlcheck.toml", ".gitignore")
_SYNCHRONIZING = (
    types.TEXT_DOCUMENT_DID_OPEN,
    types.TEXT_DOCUMENT_DID_CHANGE,
    types.TEXT_DOCUMENT_DID_CLOSE,
    types.NOTEBOOK_DOCUMENT_DID_OPEN,
    types.NOTEBOOK_DOCUMENT_DID_CHANGE,
    types.NOTEBOOK_DOCUMENT_DID_CLOSE,
)


class Server(LanguageServer):
    """The documents, what was found in them, and the one thread that checks them."""

    def __init__(self) -> None:
        notebooks = types.NotebookDocumentSyncOptions(
            notebook_selector=[
                types.NotebookDocumentFilterWithNotebook(
                    notebook="jupyter-notebook", cells=[types.NotebookCellLanguage(language="python")]
                )
            ],
            save=True,
        )
        super().__init__("dlcheck", __version__, notebook_document_sync=notebooks)
        # pygls would keep the texts too, but ends lines where the protocol does not (U+2028), and loses changes then.
        for method in _SYNCHRONIZING:
            self.protocol.fm.builtin_features.pop(method)
        self.documents = Documents()
        self.checker = Checker()
        self.checked: dict[str, Checked] = {}
        self._thread = ThreadPoolExecutor(1, "dlcheck")
        self._waiting: dict[str, None] = {}  # addresses of documents to check, the next one first
        self._running: str | None = None
        self._stale = False  # whether what is running is out of date
        self._loop: asyncio.Task[None] | None = None
        self._others: asyncio.TimerHandle | None = None
        self._told: dict[str, tuple[str, ...]] = {}
        self._shown: dict[str, set[str]] = {}  # the addresses that diagnostics were published for
        self._done = asyncio.Event()
        self._asked: Counter[str] = Counter()  # how many requests wait for a document
        self._progress: asyncio.Task[None] | None = None  # of the first check, until it has ended
        self._garbage = Garbage()
        self._first = True
        self._ended = False

    def shutdown(self) -> None:
        """The client has gone: what runs would keep the process until it is done."""
        self._ended = self._stale = True
        super().shutdown()  # type: ignore[no-untyped-call]

    # -- what the client can do

    @property
    def pulls(self) -> bool:
        """Whether the client asks for diagnostics itself, and can be told to ask again: else they are pushed."""
        text, workspace = self.client_capabilities.text_document, self.client_capabilities.workspace
        again = workspace.diagnostics if workspace is not None else None
        return text is not None and text.diagnostic is not None and bool(again is not None and again.refresh_support)

    @property
    def versioned(self) -> bool:
        workspace = self.client_capabilities.workspace
        edit = workspace.workspace_edit if workspace is not None else None
        return bool(edit is not None and edit.document_changes)

    # -- checking

    @property
    def waiting(self) -> list[str]:
        """The addresses of the documents that are to be checked, the next one first."""
        return list(self._waiting)

    def touch(self, document: Document) -> None:
        """A document was opened or changed: check it first, and the others when there is time."""
        self._check_next(document.uri)
        if self._others is not None:
            self._others.cancel()
        self._others = asyncio.get_running_loop().call_later(OTHERS_AFTER_S, self.check_others, document.uri)

    def check_others(self, but: str = "") -> None:
        """Check what is open once more: something that it may depend on has changed."""
        for uri in self.documents.by_uri:
            if uri != but and self._concerns(but, uri):
                self.checked.pop(uri, None)
                self._waiting.setdefault(uri)
                self._stale = self._stale or uri == self._running
        self._start()
        if but and len(self.documents.by_uri) > 1:
            self.ask_to_pull()

    def _concerns(self, changed: str, other: str) -> bool:
        """Whether a document may depend on one that has changed: the check of either has read the other."""
        ours, theirs = self.checked.get(changed), self.checked.get(other)
        if ours is None or theirs is None:
            return True
        by_uri = self.documents.by_uri
        return by_uri[changed].file in theirs.read or by_uri[other].file in ours.read

    def _check_next(self, uri: str) -> None:
        self._waiting = {uri: None, **self._waiting}
        if self._running == uri:
            self._stale = True
        self._start()

    def _start(self) -> None:
        if self._loop is None or self._loop.done():
            self._loop = asyncio.ensure_future(self._check_all())

    async def _check_all(self) -> None:
        while self._waiting:
            uri = next(iter(self._waiting))
            del self._waiting[uri]
            document = self.documents.by_uri.get(uri)
            if document is not None:
                self._garbage.before_check()
                await self._check(document)
        self._end_progress()
        self._garbage.after_checks()

    async def _check(self, document: Document) -> None:
        self._running, self._stale = document.uri, False
        _stand_somewhere(self.documents.folder)
        overlays = self.documents.overlays()
        if self._first and self._progress is None:
            self._progress = asyncio.ensure_future(self._show_progress())
        try:
            checked = await asyncio.get_running_loop().run_in_executor(
                self._thread, self.checker.check, document, overlays, lambda: self._stale
            )
        except Interrupted:
            return
        except Exception as error:  # noqa: BLE001 -- a fault of ours must not end the editor's session
            from dlcheck.engine import internal_error

            checked = Checked(document.version, problems=(f"{files.shown(document.file)}: {internal_error(error)}",))
        finally:
            self._running = None
        if self._stale:
            return  # it waits to be checked again, or nobody wants it
        self._end_progress()
        now = self.documents.by_uri.get(document.uri)
        if now is not None and now.version == document.version:
            self.checked[document.uri] = checked
            self._publish(document, checked)
            self._wake()

    def _wake(self) -> None:
        """Have those look again who wait for a document."""
        done, self._done = self._done, asyncio.Event()
        done.set()

    async def up_to_date(self, uri: str) -> tuple[Document, Checked] | None:
        """A document and what was found in it as it is now; None where it is not open."""
        document = self.documents.find(uri)
        if document is None:
            return None
        self._asked[document.uri] += 1
        try:
            return await self._up_to_date(document.uri)
        except asyncio.CancelledError:
            if self._asked[document.uri] == 1:
                self._unwanted(document)
            raise
        finally:
            self._asked[document.uri] -= 1

    def _unwanted(self, document: Document) -> None:
        """Nobody waits for a version any more; where diagnostics are pushed, the client still does."""
        now = self.documents.by_uri.get(document.uri)
        if not self.pulls or now is None or now.version != document.version:
            return
        self._waiting.pop(document.uri, None)
        if self._running == document.uri:
            self._stale = True

    async def _up_to_date(self, uri: str) -> tuple[Document, Checked] | None:
        while True:
            document = self.documents.find(uri)
            if document is None:
                return None
            checked = self.checked.get(document.uri)
            if checked is not None and checked.version == document.version:
                return document, checked
            if document.uri != self._running and document.uri not in self._waiting:
                self._check_next(document.uri)
            await self._done.wait()

    def _end_progress(self) -> None:
        self._first = False
        if self._progress is not None:
            self._progress.cancel()
            self._progress = None

    async def _show_progress(self) -> None:
        window = self.client_capabilities.window
        if window is None or not window.work_done_progress:
            return
        await asyncio.sleep(PROGRESS_AFTER_S)
        token = f"dlcheck-{time.monotonic_ns()}"
        # Its answer comes in any case, and must find who asked.
        await asyncio.shield(self.work_done_progress.create_async(token))
        self.work_done_progress.begin(
            token, types.WorkDoneProgressBegin(title="dlcheck", message="reading the project")
        )
        try:
            await asyncio.Event().wait()
        finally:
            self.work_done_progress.end(token, types.WorkDoneProgressEnd())

    async def fixed(self, document: Document) -> Fixed | None:
        """A document after all its safe fixes; None where it has changed meanwhile."""
        overlays, cancelled = self.documents.overlays(), False

        def stop() -> bool:
            now = self.documents.by_uri.get(document.uri)
            return cancelled or self._ended or now is None or now.version != document.version

        try:
            fixed = await asyncio.get_running_loop().run_in_executor(
                self._thread, self.checker.fixed, document, overlays, stop
            )
        except Interrupted:
            return None
        except asyncio.CancelledError:
            cancelled = True
            raise
        return None if stop() else fixed

    # -- telling

    def _publish(self, document: Document, checked: Checked) -> None:
        self._tell_problems(document, checked)
        if self.pulls:
            return
        found = Converter(self.documents, document, checked).diagnostics()
        known = self._shown.get(document.uri, set())
        for uri in {**dict.fromkeys(known), **found}:
            version = document.version if uri == document.uri else None
            self.text_document_publish_diagnostics(
                types.PublishDiagnosticsParams(uri=uri, diagnostics=found.get(uri, []), version=version)
            )
        self._shown[document.uri] = set(found)

    def _tell_problems(self, document: Document, checked: Checked) -> None:
        if checked.problems != self._told.get(document.uri, ()):
            self._told[document.uri] = checked.problems
            for problem in checked.problems:
                self.tell(problem, types.MessageType.Warning)

    def tell(self, text: str, kind: types.MessageType) -> None:
        self.window_show_message(types.ShowMessageParams(kind, f"dlcheck: {text}"))

    def close(self, document: Document) -> None:
        self.checked.pop(document.uri, None)
        self.checker.forget(document.file)
        for uri in self._shown.pop(document.uri, ()):
            self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, diagnostics=[]))
        if self._running == document.uri:
            self._stale = True
        self._wake()
        self.check_others()
        if self.documents.by_uri:
            self.ask_to_pull()

    def refresh(self) -> None:
        """Everything may be different: configuration, files on disk."""
        self.checker.warm.listed.clear()
        if self._running is not None:
            self._waiting.setdefault(self._running)
            self._stale = True
        self.check_others()
        self.ask_to_pull()

    def ask_to_pull(self) -> None:
        """Have a client that asks for diagnostics itself ask once more."""
        if self.pulls:
            self.workspace_diagnostic_refresh(None)

    def converter(self, document: Document, checked: Checked) -> Converter:
        return Converter(self.documents, document, checked)


def create() -> Server:
    """A server with all that it answers to."""
    server = Server()
    _lifecycle(server)
    _texts(server)
    _notebooks(server)
    _questions(server)
    return server


def _lifecycle(server: Server) -> None:
    @server.feature(types.INITIALIZE)
    def initialize(ls: Server, params: types.InitializeParams) -> None:
        ls.documents.encoding = _encoding(ls.workspace.position_encoding)
        ls.documents.folder = _folder(params)
        options = params.initialization_options
        # A workspace that nobody trusts may be looked at; the client says so, the protocol has no word for it.
        ls.checker.trusted = not isinstance(options, dict) or options.get("trusted") is not False
        _configure(ls, options)
        if ls.pulls:
            _pull(ls)

    @server.feature(types.INITIALIZED)
    async def initialized(ls: Server, _params: types.InitializedParams) -> None:
        await _pull_configuration(ls)
        await _watch(ls)

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def did_change_configuration(ls: Server, params: types.DidChangeConfigurationParams) -> None:
        given = params.settings
        if isinstance(given, dict) and "dlcheck" in given:
            _configure(ls, given["dlcheck"])
        else:
            await _pull_configuration(ls)
        ls.refresh()

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def did_change_watched_files(ls: Server, params: types.DidChangeWatchedFilesParams) -> None:
        changed = [uris.to_fs_path(event.uri) or "" for event in params.changes]
        # What is open is known from the editor, saved or not.
        if any(ls.documents.of_file(file) is None for file in changed):
            ls.refresh()

    @server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    def did_change_workspace_folders(ls: Server, _params: types.DidChangeWorkspaceFoldersParams) -> None:
        ls.refresh()


def _folder(params: types.InitializeParams) -> str:
    """Where texts belong that were never saved: the first folder of the workspace."""
    first = params.workspace_folders[0].uri if params.workspace_folders else params.root_uri
    return uris.to_fs_path(first or "") or os.getcwd()


def _stand_somewhere(folder: str) -> None:
    """The folder that the server was started in may be gone; without one no path means anything."""
    try:
        os.getcwd()
    except OSError:
        os.chdir(folder if os.path.isdir(folder) else os.path.abspath(os.sep))


def _encoding(kind: object) -> Any:
    return getattr(kind, "value", kind) or "utf-16"


async def _pull_configuration(server: Server) -> None:
    workspace = server.client_capabilities.workspace
    if workspace is None or not workspace.configuration:
        return
    asked = types.ConfigurationParams([types.ConfigurationItem(section="dlcheck")])
    try:
        found = await server.workspace_configuration_async(asked)
    except JsonRpcException:  # it said that it could: then the defaults hold
        return
    _configure(server, found[0] if found else None)


def _configure(server: Server, given: object) -> None:
    """Take the client's settings: the keys of the configuration file, ``extendSelect`` for ``extend-select``."""
    if given is not None and not isinstance(given, dict):
        server.tell(f"the settings must be an object, not {given!r}", types.MessageType.Error)
        return
    settings: dict[str, Any] = {}
    for key, value in (given or {}).items():
        name = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in str(key))
        if name in config.KEYS and value not in (None, "", [], {}):  # others are the client's own
            try:
                config.check({name: value}, "settings")
            except config.ConfigError as error:
                server.tell(str(error), types.MessageType.Error)
            else:
                settings[name] = value
    server.checker.overrides = settings


async def _watch(server: Server) -> None:
    """Ask to be told of files that change on disk, where the client can."""
    workspace = server.client_capabilities.workspace
    watched = workspace.did_change_watched_files if workspace is not None else None
    if watched is None or not watched.dynamic_registration:
        return
    named = [*(f"*{suffix}" for suffix in files.SUFFIXES), *_CONFIGURATION, *_records()]
    watchers = [types.FileSystemWatcher(glob_pattern=f"**/{name}") for name in named]
    options = types.DidChangeWatchedFilesRegistrationOptions(watchers)
    registration = types.Registration("dlcheck-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
    with contextlib.suppress(JsonRpcException):  # it said that it could: then without
        await server.client_register_capability_async(types.RegistrationParams([registration]))


def _records() -> Iterator[str]:
    """The files of measurements, and their folders: what comes or goes with its folder may not be told."""
    folder = files.RECORDS.replace(os.sep, "/")
    yield f"{folder}/*.json"
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]


def _texts(server: Server) -> None:
    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(ls: Server, params: types.DidOpenTextDocumentParams) -> None:
        document = ls.documents.open(params.text_document)
        if document is not None:
            ls.touch(document)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(ls: Server, params: types.DidChangeTextDocumentParams) -> None:
        document = ls.documents.change(params)
        if document is not None:
            ls.touch(document)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def did_save(ls: Server, _params: types.DidSaveTextDocumentParams) -> None:
        ls.checker.warm.listed.clear()  # a file that was new may have come

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(ls: Server, params: types.DidCloseTextDocumentParams) -> None:
        document = ls.documents.close(params.text_document.uri)
        if document is not None:
            ls.close(document)


def _notebooks(server: Server) -> None:
    @server.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    def did_open(ls: Server, params: types.DidOpenNotebookDocumentParams) -> None:
        document = ls.documents.open_notebook(params)
        if document is not None:
            ls.touch(document)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def did_change(ls: Server, params: types.DidChangeNotebookDocumentParams) -> None:
        document = ls.documents.change_notebook(params)
        if document is not None:
            ls.touch(document)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def did_close(ls: Server, params: types.DidCloseNotebookDocumentParams) -> None:
        document = ls.documents.close_notebook(params.notebook_document.uri)
        if document is not None:
            ls.close(document)


def _pull(server: Server) -> None:
    options = types.DiagnosticOptions(
        inter_file_dependencies=True, workspace_diagnostics=False, identifier=converting.SOURCE
    )

    @server.feature(types.TEXT_DOCUMENT_DIAGNOSTIC, options)
    async def diagnostic(ls: Server, params: types.DocumentDiagnosticParams) -> types.DocumentDiagnosticReport:
        uri = params.text_document.uri
        found = await ls.up_to_date(uri)
        items = ls.converter(*found).diagnostics().get(uri, []) if found is not None else []
        result = str(hash(repr(items)))
        if params.previous_result_id == result:
            return types.RelatedUnchangedDocumentDiagnosticReport(result)
        return types.RelatedFullDocumentDiagnosticReport(items, result_id=result)


def _questions(server: Server) -> None:
    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def hover(ls: Server, params: types.HoverParams) -> types.Hover | None:
        here = types.Range(params.position, params.position)
        found = await ls.up_to_date(params.text_document.uri)
        if found is None:
            return None
        converter = ls.converter(*found)
        findings = list(actions.at(converter, params.text_document.uri, here))
        if not findings:
            return None
        text = "\n\n---\n\n".join(converting.hover_of(finding) for finding in findings)
        markup = types.MarkupContent(types.MarkupKind.Markdown, text)
        return types.Hover(markup, converter.range_of(findings[0].place))

    kinds = types.CodeActionOptions([types.CodeActionKind.QuickFix, actions.FIX_ALL])

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, kinds)
    async def code_action(ls: Server, params: types.CodeActionParams) -> list[types.CodeAction]:
        found = await ls.up_to_date(params.text_document.uri)
        if found is None:
            return []
        return [action async for action in _code_actions(ls, params, ls.converter(*found))]

    @server.command(actions.SHOW_RULE)
    async def show_rule(ls: Server, code: str) -> None:
        page = pages.find(code)
        if page is None:
            ls.tell(f"there is no rule `{code}`", types.MessageType.Error)
            return
        file = os.path.join(pages.folder(), f"{page.code}-{page.name}.md")
        window = ls.client_capabilities.window
        if window is not None and window.show_document is not None and window.show_document.support:
            await ls.window_show_document_async(types.ShowDocumentParams(uris.from_fs_path(file) or file))
        else:
            ls.tell(f"{page.code} {page.name}: {page.summary}. See {file}", types.MessageType.Info)


async def _code_actions(server: Server, params: types.CodeActionParams, converter: Converter) -> Any:
    only = params.context.only
    if _wanted(types.CodeActionKind.QuickFix.value, only):
        findings = list(actions.at(converter, params.text_document.uri, params.range))
        for action in actions.quick_fixes(converter, findings, server.versioned):
            yield action
    if not _wanted(actions.FIX_ALL, only) or not any(_is_safe(finding) for finding in converter.checked.findings):
        return
    document = converter.document
    fixed = await server.fixed(document)
    if fixed is not None:
        every = actions.fix_all(converter, fixed, server.versioned)
        if every is not None:
            yield every


def _wanted(kind: str, only: Any) -> bool:
    """Whether a client that asks for some kinds of action gets this one: ``source`` stands for all below it."""
    if only is None:
        return True
    names = [getattr(one, "value", one) for one in only]
    return any(kind == name or kind.startswith(f"{name}.") or not name for name in names)


def _is_safe(finding: Any) -> bool:
    return finding.fix is not None and finding.fix.applicability == "safe"
