"""Certificates as HAProxy serves them: a list of files with host names, and the commands that replace it live.

The name of a file contains the digest of its content and options, so a changed certificate is another file. Thus what
the live process serves is compared by names alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import NamedTuple

from reconciler.engines.host.dataplane.certificates.pem import PemCertificate
from reconciler.engines.host.dataplane.certificates.selection import CertificateMatch, TlsOptions

FOLDER = "tls"
LIST = f"{FOLDER}/list"
"""The folder of certificates beside the configuration, and the list of them there."""

BIND = f"ssl crt-list ./{LIST} strict-sni alpn h2,http/1.1 ssl-min-ver TLSv1.2"
"""The words of an address with TLS. A handshake for a name without a certificate is refused."""

_ENTRY = re.compile(r"^\./(\S+):(\d+) (?:\[[^\]]*\] )?(\S+)$")
_SUITE = "TLS_"
"""The names of the ciphers of TLS 1.3 begin with it; older ones have names of OpenSSL."""


_CHALLENGE = r"{ path -m reg ^/\.well-known/acme-challenge/[-_a-zA-Z0-9]+$ }"


class TlsEntry(NamedTuple):
    """A certificate, the name that it serves, and how."""

    name: str
    certificate: PemCertificate
    options: TlsOptions

    @property
    def file(self) -> str:
        """The path of its certificate with its key."""
        return f"{FOLDER}/{_compute_digest(self.certificate.digest, *self._words)}.pem"

    @property
    def authorities_file(self) -> str:
        """The path of the authorities; "" without any."""
        return f"{FOLDER}/{_compute_digest(self.options.authorities)}.ca" if self.options.authorities else ""

    @property
    def line(self) -> str:
        """Its line of the list."""
        words = f" [{' '.join(self._words)}]" if self._words else ""
        return f"./{self.file}{words} {self.name}"

    @property
    def _words(self) -> tuple[str, ...]:
        options = self.options
        older = ":".join(cipher for cipher in options.ciphers if not cipher.startswith(_SUITE))
        suites = ":".join(cipher for cipher in options.ciphers if cipher.startswith(_SUITE))
        return (
            *((f"ssl-min-ver {options.oldest}",) if options.oldest != TlsOptions().oldest else ()),
            *((f"ciphers {older}",) if older else ()),
            *((f"ciphersuites {suites}",) if suites else ()),
            *((f"ca-file ./{self.authorities_file}", "verify required") if options.authorities else ()),
        )


class LiveTls(NamedTuple):
    """What the live process has: files and names that it serves with their lines, all files, those of authorities with
    content, and unfinished transactions.
    """

    entries: dict[tuple[str, str], int]
    files: frozenset[str]
    authorities: frozenset[str]
    unfinished: tuple[str, ...]


def challenge_answer(thumbprint: str) -> str:
    """The line of a frontend that answers the challenges of the ACME account with ``thumbprint``.

    It answers every token, so that an order needs no change here, and the daemon may be restarted meanwhile. Nothing
    but that account can use the answers.
    """
    answer = f'lf-string "%[path,field(4,/)].{thumbprint}"'
    return f"http-request return status 200 content-type application/octet-stream {answer} if {_CHALLENGE}"


def make_tls_entries(
    serving: Mapping[str, CertificateMatch], options: Mapping[str, TlsOptions]
) -> tuple[TlsEntry, ...]:
    """What to serve for hosts with a certificate; ``options`` has those hosts that differ from the default.

    Hosts of one wildcard share its entry, unless their options differ: new workloads change nothing here.
    """
    tls_entries = set()
    for host, match in serving.items():
        own = options.get(host, TlsOptions())
        tls_entries.add(TlsEntry(match.name if own == TlsOptions() else host, match.certificate, own))
    return tuple(sorted(tls_entries, key=lambda tls_entry: (tls_entry.name, tls_entry.file)))


def render_list(tls_entries: Iterable[TlsEntry]) -> str:
    """The list of certificates."""
    return "".join(f"{tls_entry.line}\n" for tls_entry in tls_entries)


def render_files(tls_entries: Iterable[TlsEntry]) -> dict[str, str]:
    """The other files, by path."""
    files = {}
    for tls_entry in tls_entries:
        files[tls_entry.file] = tls_entry.certificate.pem
        if tls_entry.options.authorities:
            files[tls_entry.authorities_file] = tls_entry.options.authorities
    return files


SHOW = (f"@1 show ssl crt-list -n ./{LIST}", "@1 show ssl cert", "@1 show ssl ca-file")
"""The commands whose output is the state of the live process."""


def read_live_tls(lists: str, certificates: str, authorities: str) -> LiveTls:
    """The state in the outputs of SHOW."""
    listed = {}
    for line in lists.splitlines():
        if match := _ENTRY.match(line):
            listed[match[1], match[3]] = int(match[2])
    files, filled, unfinished = set(), set(), []
    for line in (*certificates.splitlines(), *authorities.splitlines()):
        path, _, count = line.strip().lstrip("*").partition(" - ")
        if not path.startswith(f"./{FOLDER}/"):
            continue
        files.add(path[2:])
        # A star marks a transaction without a commit.
        if line.startswith("*"):
            unfinished.append(path[2:])
        # Authorities are listed with their number: 0 of them is a file without content.
        elif count and not count.startswith("0 "):
            filled.add(path[2:])
    return LiveTls(listed, frozenset(files), frozenset(filled), tuple(unfinished))


def tls_commands(tls_entries: Iterable[TlsEntry], live: LiveTls) -> Iterator[str]:
    """What brings ``live`` to ``tls_entries``, each a request of its own. New entries come before others leave."""
    tls_entries = tuple(tls_entries)
    files = render_files(tls_entries)
    names = {(tls_entry.file, tls_entry.name): tls_entry for tls_entry in tls_entries}
    for path in live.unfinished:
        yield f"@1 abort ssl {_get_file_kind(path)} ./{path}"
    # One that an earlier daemon did not finish is listed like others: an entry shows that it was.
    loaded = live.authorities | {path for path, _ in live.entries}
    for path in sorted(files.keys() - loaded, key=_get_load_order):
        yield from _list_load_commands(path, files[path])
    for key, listed in names.items():
        if key not in live.entries:
            yield f"@1 add ssl crt-list ./{LIST} <<\n{listed.line}\n"
    # Entries leave before files: HAProxy deletes no file that an entry uses.
    for key in live.entries.keys() - names.keys():
        yield f"@1 del ssl crt-list ./{LIST} ./{key[0]}:{live.entries[key]}"
    for path in sorted(live.files - files.keys(), key=_get_load_order, reverse=True):
        yield f"@1 del ssl {_get_file_kind(path)} ./{path}"


def _list_load_commands(path: str, content: str) -> Iterator[str]:
    # For one that exists already, the first of them is refused, and the others suffice.
    yield f"@1 new ssl {_get_file_kind(path)} ./{path}"
    yield f"@1 set ssl {_get_file_kind(path)} ./{path} <<\n{content}"
    yield f"@1 commit ssl {_get_file_kind(path)} ./{path}"


def _get_load_order(path: str) -> tuple[bool, str]:
    """Authorities come before the certificates that need them."""
    return _get_file_kind(path) == "cert", path


def _get_file_kind(path: str) -> str:
    return "cert" if path.endswith(".pem") else "ca-file"


def _compute_digest(*parts: str) -> str:
    return sha256("\n".join(parts).encode()).hexdigest()[:32]
