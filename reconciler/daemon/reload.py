"""Reloads the settings of a running daemon when their file changes, all or nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from reconciler.bugs import internal_error
from reconciler.documents.limits import read_within
from reconciler.errors import ReconcilerError, RecordsError, UsageError
from reconciler.logs import log
from reconciler.pipeline.runner import Runner
from reconciler.printable import truncate_text
from reconciler.reasons import ConditionType, Reason
from reconciler.records.store import Records
from reconciler.records.tables.conditions import HOST
from reconciler.settings import Settings, load_settings
from reconciler.source.signing import check_signing_key
from reconciler.status.conditions import make_condition

_CREDENTIALS = re.compile(r"://[^/@\s'\"`]+@")


class Reload:
    """The last content of ``file`` that was tried. ``due`` only reads the file; call the rest between two runs."""

    def __init__(self, file: Path, settings: Settings, records: Records) -> None:
        self.file = file
        self._settings = settings
        self._records = records
        self._last_tried: bytes | None = b""  # finds a change since ``settings`` were read
        self._last_read = self._content()
        self.is_changing = False
        """Whether the file differed at the last call of ``due`` from the call before."""
        self._set_condition(True, Reason.LOADED)

    def due(self) -> bool:
        """Whether the file has changed since it was last tried, and is the same as at the last call."""
        before, self._last_read = self._last_read, self._content()
        self.is_changing = self._last_read != before
        return not self.is_changing and self._last_read != self._last_tried

    def try_reload(self, make: Callable[[Settings], Runner]) -> Runner | None:
        """Return a runner for the current settings; None if they are unchanged or invalid.

        Invalid settings are reported by a condition of the host, an event and the log: once per content of the file.
        """
        content = self._content()
        again, self._last_tried = content == self._last_tried, content
        try:
            settings = load_settings(self.file)
            if settings.state != self._settings.state:
                raise UsageError(
                    f"the state directory cannot change while the daemon runs ({self._settings.state}): restart it"
                )
            check_signing_key(settings)
            runner = make(settings) if settings != self._settings else None
        except ReconcilerError as error:
            self._refuse(_CREDENTIALS.sub("://", truncate_text(str(error))), again)
            return None
        except Exception as error:  # noqa: BLE001 - the former settings stay in use
            self._refuse(str(internal_error(error, "settings")), again)
            return None
        mended = self._set_condition(True, Reason.LOADED)
        if runner is not None:
            self._settings = settings
        if runner is not None or mended:
            log().info("settings", loaded=True, sources=[source.name for source in settings.sources])
        return runner

    def _refuse(self, message: str, again: bool) -> None:
        is_new = self._set_condition(False, Reason.INVALID_SETTINGS, message)
        if is_new or not again:
            log().warning("settings", loaded=False, message=message)

    def _set_condition(self, good: bool, reason: Reason, message: str = "") -> bool:
        """Set the condition of the settings; return whether it changed. A failed write does not stop the daemon."""
        kind = ConditionType.SETTINGS_LOADED
        try:
            with self._records.transaction():
                conditions = self._records.conditions.get(HOST)
                if good and not any(
                    scope_condition.type == kind and not scope_condition.status for scope_condition in conditions
                ):
                    return False
                changed = self._records.conditions.set(HOST, make_condition(kind, good, reason, message))
                if changed and not good:
                    self._records.events.append("", Reason.SETTINGS_REFUSED, message)
                return changed
        except RecordsError:
            return True

    def _content(self) -> bytes | None:
        try:
            return read_within(self.file)
        except (OSError, UsageError):
            return None
