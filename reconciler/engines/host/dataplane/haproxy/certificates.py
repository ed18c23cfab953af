"""The certificates of a live HAProxy: files for its next start, and commands that replace what it serves now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from reconciler.clock import Clock
from reconciler.engines.host.dataplane.certificates.store import CertificateStore, Served
from reconciler.engines.host.dataplane.haproxy.master import Master, has_content
from reconciler.engines.host.dataplane.haproxy.tls import (
    FOLDER,
    LIST,
    SHOW,
    LiveTls,
    TlsEntry,
    challenge_answer,
    make_tls_entries,
    read_live_tls,
    render_files,
    render_list,
    tls_commands,
)
from reconciler.engines.host.disk.atomic import write_atomic, write_error
from reconciler.engines.workload.routing.table import RouteTable
from reconciler.errors import EngineError
from reconciler.listing import list_paths
from reconciler.private_files import make_directory

COMPARE_SECONDS = 30.0
"""Seconds between two comparisons without a change; nobody but this daemon changes certificates."""


class LiveCertificates:
    """The certificates of the HAProxy of ``master``, whose files are in ``directory``."""

    def __init__(self, directory: Path, master: Master, clock: Clock) -> None:
        self._directory = directory
        self._master = master
        self._clock = clock
        self._written: str | None = None
        self._served: str | None = None
        self._compared_at = float("-inf")
        self._wanted: Sequence[TlsEntry] = ()
        master.restore_with(self._restore)

    def write(self, tls_entries: Sequence[TlsEntry]) -> None:
        """Write what the next worker serves. Raises EngineError, and then the former list remains."""
        text = render_list(tls_entries)
        if text == self._written:
            return
        try:
            make_directory(self._directory / FOLDER)
        except OSError as error:
            raise write_error(f"{self._directory / FOLDER} cannot be used", error) from None
        for path, content in render_files(tls_entries).items():
            if not has_content(self._directory / path, content):
                write_atomic(self._directory / path, content.encode(), 0o600)
        # The list comes last, so it names no file that is missing.
        write_atomic(self._directory / LIST, text.encode(), 0o600)
        self._written, self._wanted = text, tls_entries

    def _restore(self) -> None:
        """Write the files again that another program has damaged. Raises EngineError."""
        if self._written is not None:
            self._written = None
            self.write(self._wanted)

    async def bring(self, tls_entries: Sequence[TlsEntry]) -> bool:
        """Bring the live worker to ``tls_entries`` without a reload; return False if only a reload does it.

        Raises EngineError.
        """
        text, now = render_list(tls_entries), self._clock.monotonic()
        if text == self._served and now < self._compared_at + COMPARE_SECONDS:
            return True
        self._compared_at = now
        for command in tls_commands(tls_entries, await self._read()):
            await self._master.ask(command)
        # The state decides and not the answers: it lacks what a refused command would have brought.
        live = await self._read()
        complete = live.entries.keys() == {(tls_entry.file, tls_entry.name) for tls_entry in tls_entries}
        self._served = text if complete else None
        if complete:
            self._remove_others(tls_entries)
        return complete

    async def _read(self) -> LiveTls:
        return read_live_tls(*[await self._master.ask(text) for text in SHOW])

    def _remove_others(self, tls_entries: Sequence[TlsEntry]) -> None:
        """Remove the files that no worker needs any more: a private key stays on the disk only as long as it serves."""
        names = {LIST, *render_files(tls_entries)}
        with suppress(OSError):
            for path in list_paths(self._directory / FOLDER, "*"):
                if f"{FOLDER}/{path.name}" not in names:
                    path.unlink()


class RouteCertificates:
    """The certificates of the host names in a table of routes. ``hosts`` are those that have one.

    ``challenge`` is the line that answers an authority, "" without one. ``reloads`` grows with each change that the
    live process refused, so that it is reloaded with what is in the files. ``error`` is why they cannot be written.
    """

    def __init__(self, live: LiveCertificates, store: CertificateStore) -> None:
        self.hosts: frozenset[str] = frozenset()
        self.challenge = challenge_answer(store.thumbprint) if store.thumbprint else ""
        self.reloads = 0
        self.error = ""
        self._live = live
        self._store = store
        self._served: Served | None = None
        self._wanted: tuple[TlsEntry, ...] = ()
        self._refused: tuple[TlsEntry, ...] = ()

    @property
    def served_certificates(self) -> Served:
        """What was found for host names last."""
        return self._store.served

    @property
    def problems(self) -> Mapping[str, tuple[str, ...]]:
        """Why host names are not served with TLS, or not as declared, by domain."""
        served = self.served_certificates
        names = dict.fromkeys((*served.problems, *served.missing))
        return {name: (*served.problems.get(name, ()), *served.missing.get(name, ())) for name in names}

    async def prepare(self, table: RouteTable) -> None:
        """Find the certificates for ``table``, and write them. What fails here leaves those before in force."""
        await self._store.update(table)
        if (served := self.served_certificates) is self._served:
            return
        tls_entries = make_tls_entries(served.certificates, served.options)
        try:
            self._live.write(tls_entries)
        except EngineError as error:
            self.error = str(error)
            return
        self.error, self._served, self._wanted = "", served, tls_entries
        self.hosts = frozenset(served.certificates)

    async def bring(self) -> None:
        """Bring the live process to them; where it refuses a command, let it be reloaded once. Raises EngineError."""
        if not await self._live.bring(self._wanted) and self._refused != self._wanted:
            self._refused = self._wanted
            self.reloads += 1
