"""What host names were served with last: it stays in service where a secret of their domain cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from reconciler.engines.host.dataplane.certificates.pem import PemCertificate
from reconciler.engines.host.dataplane.certificates.selection import CertificateMatch, TlsOptions
from reconciler.engines.host.disk.atomic import write_atomic
from reconciler.errors import EngineError
from reconciler.listing import list_paths


class Former(msgspec.Struct, frozen=True):
    """The certificate and the options of ``host``; ``name`` is the one of its names that matches."""

    host: str
    name: str
    certificate: PemCertificate
    options: TlsOptions

    def match(self, now: float) -> CertificateMatch | None:
        """The certificate as it can be served at ``now``; None once it has expired."""
        is_valid = self.certificate.not_before <= now < self.certificate.not_after
        return CertificateMatch(self.name, self.certificate) if is_valid else None


class FormerCertificates:
    """Remembers them in ``directory``, with their keys, so that a restart of the daemon changes nothing. Blocks."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._found: dict[str, Former] | None = None

    def by_host(self) -> Mapping[str, Former]:
        """All of them. A file that cannot be read is as one that is missing."""
        if self._found is None:
            self._found = {}
            for path in list_paths(self._directory, "*.json"):
                with suppress(OSError, msgspec.DecodeError):
                    former = msgspec.json.decode(path.read_bytes(), type=Former)
                    self._found[former.host] = former
        return self._found

    def replace(self, certificates: Mapping[str, Former]) -> None:
        """Remember ``certificates`` and nothing else: a private key stays on the disk only as long as it may serve."""
        before = self.by_host()
        with suppress(EngineError):  # without room on the disk, they are remembered until the daemon ends
            for host in certificates:
                if before.get(host) != certificates[host]:
                    write_atomic(self._path(host), msgspec.json.encode(certificates[host]), 0o600)
        with suppress(OSError):
            for host in before.keys() - certificates.keys():
                self._path(host).unlink(missing_ok=True)
        self._found = dict(certificates)

    def _path(self, host: str) -> Path:
        return self._directory / f"{sha256(host.encode()).hexdigest()[:32]}.json"
