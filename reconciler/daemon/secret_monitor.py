"""Checks secrets whose values are not recorded: those of this host, and those that could not be decrypted."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reconciler.bugs import internal_error
from reconciler.errors import InternalError, RecordsError, SourceError
from reconciler.pipeline.desired_view import DesiredStateView
from reconciler.pipeline.host_secrets import check_host_secrets
from reconciler.pipeline.secret_filler import SecretFiller
from reconciler.reasons import Reason
from reconciler.records.store import Records
from reconciler.records.tables.events import NewEvent
from reconciler.records.tables.suspensions import source_target


class HostSecretMonitor:
    """Checks the values that secrets read from this host. ``views`` makes, by source, a view of the desired state
    alone. ``filler`` retries secrets that could not be decrypted.
    """

    def __init__(
        self,
        records: Records,
        views: Mapping[str, Callable[[], DesiredStateView]],
        filler: SecretFiller | None = None,
    ) -> None:
        self._records = records
        self._views = views
        self._filler = filler
        self._lost: set[str] = set()
        self._bugs: dict[str, str] = {}

    def check(self) -> set[str]:
        """Return the sources whose secrets have changed values. Report a lost value once. Raises RecordsError."""
        if self._filler is not None:
            self._filler.retry()
        changed: set[str] = set()
        lost: dict[str, str] = {}
        for name, view in self._views.items():
            try:
                changes = check_host_secrets(view())
            except SourceError:  # the next poll of the source reports it
                continue
            except RecordsError:
                raise
            except Exception as error:  # noqa: BLE001 - the secrets of the other sources are checked
                self._on_bug(name, internal_error(error, f"secrets of {name}"))
                continue
            changed |= {name} if changes.other else set()
            lost |= {entry.key: f"{entry.path}:{entry.line}" for entry in changes.lost}
        news, self._lost = sorted(lost.keys() - self._lost), set(lost)
        if news:
            words = "can no longer be read on this host; what was applied stays"
            events = [NewEvent(key, Reason.SECRET_LOST, f"{lost[key]}: {words}") for key in news]
            self._records.events.append_many(events)
        return changed

    def _on_bug(self, name: str, bug: InternalError) -> None:
        """Append an event for a bug, once for each source and place in the code."""
        if self._bugs.get(name) != bug.place:
            self._bugs[name] = bug.place
            message = f"its secrets on this host cannot be watched: {bug}"
            self._records.events.append(source_target(name), bug.reason, message)
