"""Findings and fixes in the words of the protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lsprotocol import types
from pygls import uris

from dlcheck import pages
from dlcheck.findings import Edit, Finding, Place
from dlcheck.lsp import texts
from dlcheck.lsp.checking import Checked
from dlcheck.lsp.documents import Document, Documents
from dlcheck.lsp.texts import Encoding
from dlcheck.source import Source

SOURCE = "dlcheck"
SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "info": types.DiagnosticSeverity.Information,
}
# What these point at does nothing at all: editors show it faded.
UNNECESSARY = frozenset({"DLC002", "DLC108"})


@dataclass(frozen=True)
class Converter:
    """Converts what was found in one version of a document."""

    documents: Documents
    document: Document
    checked: Checked

    @property
    def encoding(self) -> Encoding:
        return self.documents.encoding

    # -- places

    def range_of(self, place: Place) -> types.Range:
        """The range of a place: in a notebook, within its cell."""
        source = self._source(place.path)
        if source is None:
            return types.Range(types.Position(place.line - 1, 0), types.Position(place.end_line - 1, 0))
        return range_in(source, place, self.encoding)

    def uri_of(self, place: Place) -> str | None:
        """Where a place lies; None where it is in a cell that the editor has not shown us."""
        source = self._source(place.path)
        file = source.file if source is not None else place.path
        document = self.document if file == self.document.file else self.documents.of_file(file)
        if document is None:
            return uris.from_fs_path(file) if place.cell is None else None
        if document.cells is None:
            return document.uri
        cell = document.cell(place.cell)
        return cell.uri if cell is not None else None

    def _source(self, path: str) -> Source | None:
        own = self.checked.source
        return own if own is not None and own.path == path else self.checked.sources.get(path)

    # -- diagnostics

    def diagnostics(self) -> dict[str, list[types.Diagnostic]]:
        """The diagnostics of the document, by the address of the text or cell that each is in."""
        found: dict[str, list[types.Diagnostic]] = {cell.uri: [] for cell in self.document.cells or ()}
        if self.document.cells is None:
            found[self.document.uri] = []
        for finding in self.checked.findings:
            uri = self.uri_of(finding.place)
            if uri is not None:
                found.setdefault(uri, []).append(self.diagnostic(finding))
        return found

    def diagnostic(self, finding: Finding) -> types.Diagnostic:
        related = [self._related(place) for place in finding.related]
        address = pages.address(finding.code)
        return types.Diagnostic(
            range=self.range_of(finding.place),
            message=message_of(finding),
            severity=SEVERITIES[finding.severity],
            code=finding.code,
            code_description=types.CodeDescription(address) if address else None,
            source=SOURCE,
            tags=[types.DiagnosticTag.Unnecessary] if finding.code in UNNECESSARY else None,
            related_information=[one for one in related if one is not None] or None,
            data={"fingerprint": finding.fingerprint, "rule": finding.rule},
        )

    def _related(self, place: Place) -> types.DiagnosticRelatedInformation | None:
        uri = self.uri_of(place)
        if uri is None:
            return None
        return types.DiagnosticRelatedInformation(
            types.Location(uri, self.range_of(place)), place.message or "see here"
        )

    # -- edits

    def workspace_edit(self, edits: Iterable[Edit], versioned: bool) -> types.WorkspaceEdit | None:
        """Edits of files, open or not; None where one is in a cell that is not there."""
        by_uri: dict[str, list[types.TextEdit]] = {}
        for edit in edits:
            uri = self.uri_of(edit.place)
            if uri is None:
                return None
            by_uri.setdefault(uri, []).append(types.TextEdit(self.range_of(edit.place), edit.replacement))
        return workspace_edit(by_uri, self.documents, versioned)


def workspace_edit(
    by_uri: Mapping[str, list[types.TextEdit]], documents: Documents, versioned: bool
) -> types.WorkspaceEdit:
    """Edits as the client takes them: with the versions that they were made for, where it can check these."""
    if not versioned:
        return types.WorkspaceEdit(changes={uri: list(edits) for uri, edits in by_uri.items()})
    changes = []
    for uri, edits in by_uri.items():
        known = documents.by_uri.get(uri)
        named = types.OptionalVersionedTextDocumentIdentifier(uri=uri, version=known.version if known else None)
        changes.append(types.TextDocumentEdit(text_document=named, edits=list(edits)))
    return types.WorkspaceEdit(document_changes=changes)


def range_in(source: Source, place: Place, encoding: Encoding) -> types.Range:
    start, end = source.span(place)
    found = texts.span(source.text, start, end, encoding, source.starts)
    above = next((cell.first_line for cell in source.cells if cell.number == place.cell), 0)
    return types.Range(
        types.Position(found.start.line - above, found.start.character),
        types.Position(found.end.line - above, found.end.character),
    )


def message_of(finding: Finding) -> str:
    """What is wrong, what to do, and what measuring it said."""
    lines = [finding.message]
    if finding.help:
        lines.append(finding.help)
    if finding.measurement is not None:
        lines.append(f"Measured: {finding.measurement.text}")
    return "\n".join(lines)


def hover_of(finding: Finding) -> str:
    """The page of a finding's rule under what was found here, in Markdown."""
    page = pages.load().get(finding.code)
    parts = [f"**{finding.code}** {finding.rule}: {finding.message}"]
    if finding.help:
        parts.append(finding.help)
    if finding.measurement is not None:
        parts.append(f"Measured: {finding.measurement.text}")
    if finding.fix is not None:
        parts.append(f"Fix ({finding.fix.applicability}): {finding.fix.message}")
    elif finding.unfixed:
        parts.append(f"Not fixed: {finding.unfixed}")
    if page is not None:
        parts += ["---", page.body.strip()]
    return "\n\n".join(parts)
