"""Checks the overrides of an execution as a manifest is checked: what comes by a command passes the same rules."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from reconciler.changes.commits import make_manifest
from reconciler.clock import Clock
from reconciler.engines.command_spec import read_spec
from reconciler.engines.workload_commands import RUN, OverridesRefused, RunCronWorkload, apply_overrides
from reconciler.errors import RefusedError
from reconciler.manifests.change_set import ChangeSet
from reconciler.manifests.decoder import decode_manifests
from reconciler.manifests.gvc_resolution import resource_of
from reconciler.manifests.reference_check import check_references
from reconciler.model.finding import Finding, Severity
from reconciler.model.key import Key
from reconciler.pipeline.source_pipeline import SourcePipeline
from reconciler.records.store import Records
from reconciler.settings import Settings


def overridden_manifest(key: Key, body: Mapping[str, Any], name: str, spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """The manifest of what the command ``name`` runs; None if it overrides nothing. Raises EngineError."""
    if name != RUN or not spec.get("containerOverrides"):
        return None
    return apply_overrides(make_manifest(key, body), read_spec(name, {"location": "", **spec}, RunCronWorkload))


class OverrideCheck:
    """Checks workloads with overrides against the last good revision of the source that declares them."""

    def __init__(self, settings: Settings, records: Records, clock: Clock) -> None:
        self._settings = settings
        self._records = records
        self._clock = clock

    def check(self, key: Key, body: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
        """Raise OverridesRefused if ``manifest`` has errors that the workload ``key``, applied with ``body``, has not.

        Raises SourceError if the source cannot be read.
        """
        errors = self._errors(key, manifest)
        if errors:
            former = {(error.message, error.suggestion) for error in self._errors(key, make_manifest(key, body))}
            errors = [error for error in errors if (error.message, error.suggestion) not in former]
        if errors:
            raise OverridesRefused(errors)

    def _errors(self, key: Key, manifest: Mapping[str, Any]) -> list[Finding]:
        """The errors of ``manifest`` alone, and those between it and other resources.

        Raises OverridesRefused if it has errors that keep the others from being found.
        """
        entry = self._records.desired.get(str(key))
        source = next((source for source in self._settings.sources if entry and source.name == entry.source), None)
        if entry is None or source is None:
            raise RefusedError(f"{key} is in no source any more, so nothing is overridden in it: run it as it is")
        pipeline = SourcePipeline(self._settings, source, self._records, self._clock)
        decoded = decode_manifests(json.dumps(manifest, ensure_ascii=False).encode(), pipeline.dialect)
        own = (msgspec.structs.replace(Finding.at("", fault), key=str(key)) for fault in decoded.faults)
        if not decoded.manifests:
            raise OverridesRefused([*_errors_among(own)])
        resource = resource_of(decoded.manifests[0], key.gvc, entry.path, entry.blob)
        changes = ChangeSet(added={str(key): resource}, previous={str(key): entry})
        with self._records.snapshot():
            findings = check_references(changes, pipeline.view().with_changes(changes))
        return [*_errors_among(own), *_errors_among(finding for finding in findings if finding.key == str(key))]


def _errors_among(findings: Iterable[Finding]) -> Iterator[Finding]:
    return (finding for finding in findings if finding.severity is Severity.ERROR)
