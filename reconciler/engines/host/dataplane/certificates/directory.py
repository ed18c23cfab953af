"""Reads the certificates of a directory again and again; only files that changed are read a second time."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from reconciler.engines.host.dataplane.certificates.pem import (
    LARGEST,
    CertificateError,
    PemCertificate,
    read_certificate,
)

MOST = 10_000
"""The most certificates of a directory; more are reported and not read."""

_ENDINGS = (".pem", ".crt", ".cer")
_CHAIN, _KEY = "fullchain.pem", "privkey.pem"
"""The files of one certificate in a folder of certbot."""


class _Version(NamedTuple):
    """What differs once a file was changed or replaced."""

    inode: int
    size: int
    changed: int


class _Pair(NamedTuple):
    """The file of a certificate, and that of its key; None if it is the same one."""

    chain: Path
    key: Path | None


class _Entry(NamedTuple):
    versions: tuple[_Version | str, ...]
    certificate: PemCertificate | None
    problem: str


class CertificateDirectory:
    """The certificates below ``path``: ``NAME.pem`` with all in one file, ``NAME.crt`` beside ``NAME.key``, and folders
    with ``fullchain.pem`` and ``privkey.pem``, as certbot writes them.

    ``problems`` maps each file that cannot be used to the reason. What such a file had before stays, also if an earlier
    daemon has read it and ``remembered`` has it, by its file.
    """

    def __init__(self, path: Path) -> None:
        self.certificates: tuple[PemCertificate, ...] = ()
        self.problems: dict[str, str] = {}
        self.path = path
        self._entries: dict[_Pair, _Entry] = {}

    def refresh(self, remembered: Mapping[str, PemCertificate] = {}) -> None:
        """Read what changed. A directory that cannot be listed is a problem, and what was read before remains."""
        try:
            pairs = _list_pairs(self.path)
        except OSError as error:
            self.problems = {str(self.path): f"it cannot be listed: {error.strerror}"}
            self.certificates = self.certificates or tuple(remembered.values())
            return
        self._entries = {pair: self._read(pair, remembered.get(str(pair.chain))) for pair in pairs[:MOST]}
        entries = self._entries.values()
        self.certificates = tuple(entry.certificate for entry in entries if entry.certificate is not None)
        self.problems = {str(pair.chain): entry.problem for pair, entry in self._entries.items() if entry.problem}
        if len(pairs) > MOST:
            self.problems[str(self.path)] = f"it has more than {MOST:,} certificates; the first ones are used"

    def _read(self, pair: _Pair, remembered: PemCertificate | None) -> _Entry:
        files = [path for path in pair if path is not None]
        versions = tuple(_get_file_version(file) for file in files)
        former = self._entries.get(pair)
        if former is not None and former.versions == versions:
            return former
        try:
            contents = [_read_content(file) for file in files]
            return _Entry(versions, read_certificate(contents[0], str(pair.chain), *contents[1:]), "")
        except CertificateError as error:
            problem = str(error)
        except OSError as error:
            problem = f"it cannot be read: {error.strerror}"
        last = former.certificate if former is not None and former.certificate is not None else remembered
        return _Entry(
            versions, last, f"{problem}; what it had before stays in service" if last is not None else problem
        )


def _list_pairs(directory: Path) -> list[_Pair]:
    """The files of each certificate in ``directory``, by name. Raises OSError."""
    pairs = []
    names = sorted(os.listdir(directory))
    for name in names:
        path = directory / name
        if name.startswith("."):
            continue
        if path.is_dir():
            if (path / _CHAIN).exists():
                pairs.append(_Pair(path / _CHAIN, path / _KEY))
        elif path.suffix in _ENDINGS:
            key = path.with_suffix(".key")
            pairs.append(_Pair(path, key if key.name in names else None))
    return pairs


def _get_file_version(path: Path) -> _Version | str:
    """The version of the file; the error if it is unknown."""
    try:
        stat_result = path.stat()
    except OSError as error:
        return str(error.strerror)
    return _Version(stat_result.st_ino, stat_result.st_size, stat_result.st_mtime_ns)


def _read_content(path: Path) -> bytes:
    """The content of a regular file, up to the largest size. Raises CertificateError and OSError.

    Links are followed, as certbot makes them. A pipe or a device is refused without a wait for its content.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:
        stat_result = os.fstat(file.fileno())
        if not stat.S_ISREG(stat_result.st_mode):
            raise CertificateError(f"{path.name} is not a regular file")
        if stat_result.st_size > LARGEST:
            raise CertificateError(f"{path.name} is larger than 1 MiB")
        return file.read(LARGEST) or b""
