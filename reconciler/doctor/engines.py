"""What the engines of the locations need, as they check it themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import islice

import msgspec

from reconciler.checks import Check, UserIdentity
from reconciler.clock import Clock
from reconciler.doctor.secrets import readable_records
from reconciler.engines.plugin import SupportsDoctor, list_plugins
from reconciler.errors import EngineError, ReconcilerError
from reconciler.model.key import Key
from reconciler.model.kinds.secret import SecretValue
from reconciler.pipeline.accept import index_revision
from reconciler.pipeline.source_pipeline import SourcePipeline
from reconciler.planning.plan import Step
from reconciler.records.store import Records
from reconciler.secrets.store import SecretStore
from reconciler.settings import Settings

MOST_FILES = 5_000
"""Files of manifests up to which it is checked what they need: more would take seconds."""


def check_engines(settings: Settings, who: UserIdentity, pid: int | None, clock: Clock) -> Iterator[Check]:
    """Check this host for each engine that a location is bound to, and for what the manifests need of it.

    ``pid`` is the daemon's, None if none runs.
    """
    steps = _plan_all(settings, clock)
    for plugin in list_plugins():
        if isinstance(plugin, SupportsDoctor):
            yield from plugin.check_host(settings, who, pid, steps)


def _plan_all(settings: Settings, clock: Clock) -> list[Step] | None:
    """Steps that would create all that the newest manifests have; None if a source cannot be read, or is too large.

    Files with errors are left out; `reconciler validate` and the checks of the sources tell of them.
    """
    steps: list[Step] = []
    lenient = msgspec.structs.replace(settings, on_invalid="skip", approval="never")
    with closing(Records.open(None)) as records:
        for source in settings.sources:
            if not (source.local or os.path.isfile(settings.state / "mirrors" / f"{source.name}.git" / "HEAD")):
                return None
            try:
                pipeline = SourcePipeline(lenient, source, records, clock)
                # That they need a runtime for images is no error here: it is what the check is about.
                pipeline.externals = msgspec.structs.replace(pipeline.externals, process_locations=frozenset())
                changes = pipeline.source.repository.changes("", pipeline.source.revision().tree)
                if next(islice(changes, MOST_FILES, None), None) is not None:
                    return None
                planned = pipeline.plan_revision()
            except ReconcilerError:
                return None
            steps += planned.plan.steps if planned.plan is not None else ()
            index_revision(records, planned.loaded, source.name)
    return steps


def check_certificates(settings: Settings, who: UserIdentity, clock: Clock) -> Iterator[Check]:
    """Check the certificates of all locations. Only ``who``, the daemon's user, can check those in secrets."""
    if all(bound.ingress is None for bound in settings.locations.values()):
        return
    with readable_records(settings, who) as records:
        secrets = _Secrets(settings, records, clock)
        for plugin in list_plugins():
            if isinstance(plugin, SupportsDoctor):
                yield from plugin.check_certificates(settings, records, secrets.read, clock)


class _Secrets:
    """The secrets of the records, and those that are never recorded, from their source."""

    def __init__(self, settings: Settings, records: Records | None, clock: Clock) -> None:
        self._settings = settings
        self._records = records
        self._clock = clock

    def read(self, key: Key) -> SecretValue:
        """The data of a secret. Raises EngineError and SourceError."""
        assert self._records is not None
        with closing(SecretStore(self._records, self._settings)) as store:
            with suppress(EngineError):
                return store.read(key)
            self._read_source(store, self._records, key)
            return store.read(key)

    def _read_source(self, store: SecretStore, records: Records, key: Key) -> None:
        entry = records.desired.get(str(key))
        for source in self._settings.sources:
            if entry is not None and source.name == entry.source:
                resource = SourcePipeline(self._settings, source, records, self._clock).view().bodies.resource(str(key))
                if resource is not None:
                    store.put(resource)
