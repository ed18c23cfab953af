"""Certificates as HAProxy serves them: a list of files with host names, and the commands that replace it live.

The name of a file contains the digest of its content and options, so a changed certificate is another file. Thus what
the live process serves is compared by names alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import NamedTuple

from reconciler.engines.host.dataplane.certificates.pem import Certificate
from reconciler.engines.host.dataplane.certificates.selection import Match, TlsOptions

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
    certificate: Certificate
    options: TlsOptions

    @property
    def file(self) -> str:
        """The path of its certificate with its key."""
        return f"{FOLDER}/{_digest(self.certificate.digest, *self._words)}.pem"

    @property
    def authorities_file(self) -> str:
        """The path of the authorities; "" without any."""
        return f"{FOLDER}/{_digest(self.options.authorities)}.ca" if self.options.authorities else ""

    @property
    def line(self) -> str:
        """Its line of the list."""
        words = f" [{' '.join(self._words)}]" if self._words else ""
        return f"./{self.file}{words} {self.name}"

    @property
    def _words(self) -> tuple[str, ...]:
        options = self.options
        older = ":".join(each for each in options.ciphers if not each.startswith(_SUITE))
        suites = ":".join(each for each in options.ciphers if each.startswith(_SUITE))
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


def entries(serving: Mapping[str, Match], options: Mapping[str, TlsOptions]) -> tuple[TlsEntry, ...]:
    """What to serve for hosts with a certificate; ``options`` has those hosts that differ from the default.

    Hosts of one wildcard share its entry, unless their options differ: new workloads change nothing here.
    """
    found = set()
    for host, match in serving.items():
        own = options.get(host, TlsOptions())
        found.add(TlsEntry(match.name if own == TlsOptions() else host, match.certificate, own))
    return tuple(sorted(found, key=lambda each: (each.name, each.file)))


def render_list(wanted: Iterable[TlsEntry]) -> str:
    """The list of certificates."""
    return "".join(f"{each.line}\n" for each in wanted)


def render_files(wanted: Iterable[TlsEntry]) -> dict[str, str]:
    """The other files, by path."""
    found = {}
    for each in wanted:
        found[each.file] = each.certificate.pem
        if each.options.authorities:
            found[each.authorities_file] = each.options.authorities
    return found


SHOW = (f"@1 show ssl crt-list -n ./{LIST}", "@1 show ssl cert", "@1 show ssl ca-file")
"""The commands whose output is the state of the live process."""


def read_live_tls(lists: str, certificates: str, authorities: str) -> LiveTls:
    """The state in the outputs of SHOW."""
    found = {}
    for line in lists.splitlines():
        if match := _ENTRY.match(line):
            found[match[1], match[3]] = int(match[2])
    files, filled, unfinished = set(), set(), []
    for line in (*certificates.splitlines(), *authorities.splitlines()):
        path, _, count = line.strip().lstrip("*").partition(" - ")
        if not path.startswith(f"./{FOLDER}/"):
            continue
        files.add(path[2:])
        if line.startswith("*"):
            unfinished.append(path[2:])
        elif count and not count.startswith("0 "):
            filled.add(path[2:])
    return LiveTls(found, frozenset(files), frozenset(filled), tuple(unfinished))


def tls_commands(wanted: Iterable[TlsEntry], live: LiveTls) -> Iterator[str]:
    """What brings ``live`` to ``wanted``, each a request of its own. New entries come before others leave."""
    wanted = tuple(wanted)
    files = render_files(wanted)
    names = {(each.file, each.name): each for each in wanted}
    for path in live.unfinished:
        yield f"@1 abort ssl {_kind(path)} ./{path}"
    # One that an earlier daemon did not finish is listed like others: an entry shows that it was.
    loaded = live.authorities | {path for path, _ in live.entries}
    for path in sorted(files.keys() - loaded, key=_order):
        yield from _load(path, files[path])
    for key, each in names.items():
        if key not in live.entries:
            yield f"@1 add ssl crt-list ./{LIST} <<\n{each.line}\n"
    for key in live.entries.keys() - names.keys():
        yield f"@1 del ssl crt-list ./{LIST} ./{key[0]}:{live.entries[key]}"
    for path in sorted(live.files - files.keys(), key=_order, reverse=True):
        yield f"@1 del ssl {_kind(path)} ./{path}"


def _load(path: str, content: str) -> Iterator[str]:
    # For one that exists already, the first of them is refused, and the others suffice.
    yield f"@1 new ssl {_kind(path)} ./{path}"
    yield f"@1 set ssl {_kind(path)} ./{path} <<\n{content}"
    yield f"@1 commit ssl {_kind(path)} ./{path}"


def _order(path: str) -> tuple[bool, str]:
    """Authorities come before the certificates that need them."""
    return _kind(path) == "cert", path


def _kind(path: str) -> str:
    return "cert" if path.endswith(".pem") else "ca-file"


def _digest(*parts: str) -> str:
    return sha256("\n".join(parts).encode()).hexdigest()[:32]
