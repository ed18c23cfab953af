"""What the engines of the locations need, as they check it themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress

from reconciler.checks import Check, UserIdentity
from reconciler.clock import Clock
from reconciler.doctor.secrets import readable_records
from reconciler.engines.plugin import SupportsDoctor, list_plugins
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.model.kinds.secret import SecretValue
from reconciler.pipeline.source_pipeline import SourcePipeline
from reconciler.records.store import Records
from reconciler.secrets.store import SecretStore
from reconciler.settings import Settings


def check_engines(settings: Settings, who: UserIdentity, pid: int | None) -> Iterator[Check]:
    """Check this host for each engine that a location is bound to; ``pid`` is the daemon's, None if none runs."""
    for plugin in list_plugins():
        if isinstance(plugin, SupportsDoctor):
            yield from plugin.check_host(settings, who, pid)


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
