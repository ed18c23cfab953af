"""The certificates that the host names of a location get: from a directory, from secrets of domains, and over ACME."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from reconciler.clock import Clock
from reconciler.engines.host.dataplane.certificates.directory import CertificateDirectory
from reconciler.engines.host.dataplane.certificates.former import Former, FormerCertificates
from reconciler.engines.host.dataplane.certificates.pem import (
    CertificateError,
    PemCertificate,
    read_authorities,
    read_secret,
    secret_parts,
)
from reconciler.engines.host.dataplane.certificates.selection import CertificateMatch, TlsOptions, select_certificates
from reconciler.engines.protocol import SecretReader
from reconciler.engines.workload.routing.table import HTTPS, RouteTable
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.domain import Tls
from reconciler.model.kinds.secret import SecretValue
from reconciler.printable import escape_text
from reconciler.times import format_iso_time

REFRESH_SECONDS = 60.0
"""Seconds between two reads of files and secrets that no other change demands."""

_VERSIONS = {"TLSV1_0": "TLSv1.0", "TLSV1_1": "TLSv1.1", "TLSV1_2": "TLSv1.2", "TLSV1_3": "TLSv1.3"}
"""A version in a manifest → in HAProxy."""

_AWAITED = "the certificate is not issued yet"
_RENEWED = "and the next one is not issued yet"

_MOST_HOSTS = 5
"""Hosts with the same reason that a text names."""

_PARTS = ("cert", "chain", "payload", "publicKey")
"""The parts of a secret that can have certificates of authorities."""


class SecureHost(msgspec.Struct, frozen=True):
    """A host name that is served with TLS: how, and the domain that declares it ("": an endpoint of a workload).

    ``dns``: an authority checks it by a record of DNS, where that is possible.
    """

    tls: Tls = Tls()
    domain: str = ""
    dns: bool = False


class Served(msgspec.Struct, frozen=True):
    """What is served: ``certificates`` and ``options`` by host name; ``problems`` are by domain.

    ``missing`` are the reasons why hosts of a domain have no certificate, by domain, each with all of its hosts, and
    ``lacking`` these hosts with their reasons. Those that are ``awaited`` are ordered, and nothing has failed.
    ``without_domain`` are reasons by host name, of endpoints of workloads. ``unverified`` is what DNS lacks to prove a
    domain, ``not_renewed`` why a host still has its former certificate.
    """

    certificates: dict[str, CertificateMatch] = {}
    options: dict[str, TlsOptions] = {}
    problems: dict[str, tuple[str, ...]] = {}
    missing: dict[str, tuple[str, ...]] = {}
    unverified: dict[str, str] = {}
    not_renewed: dict[str, str] = {}
    without_domain: dict[str, str] = {}
    lacking: dict[str, str] = {}
    awaited: frozenset[str] = frozenset()


class CertificateFolders(NamedTuple):
    """Where files of certificates are: those of the operator, if any, and those that were served last."""

    shared: Path | None
    former: Path


class _Declared(NamedTuple):
    """The hosts that can be served with TLS, their options, the certificates that their domains name, or had, and
    the hosts whose domains name secrets.
    """

    hosts: dict[str, SecureHost]
    options: dict[str, TlsOptions]
    serving: dict[str, CertificateMatch]
    with_secrets: set[str]


class _Found(NamedTuple):
    """What is served, the hosts to order certificates for, each with the domain to prove, and all domains to prove."""

    served: Served
    ordered: dict[str, str]
    domains: set[str]
    dns: frozenset[str]


class Proofs(Protocol):
    """What proves that domains are the org's; ``unproven`` are those without a proof, with the reason."""

    unproven: dict[str, str]

    def want(self, domains: Collection[str]) -> None:
        """Find proofs for ``domains``."""


class Issuing(Protocol):
    """Where further certificates come from."""

    problems: dict[str, str]

    @property
    def wildcards(self) -> bool:
        """Whether wildcards can be issued too."""

    @property
    def certificates(self) -> tuple[PemCertificate, ...]:
        """Those that were issued so far."""

    def want(self, hosts: Mapping[str, str], dns: Collection[str] = ()) -> None:
        """Obtain certificates for ``hosts``, each with the domain that has to be proven; ``dns`` by records of DNS."""


class CertificateStore:
    """Finds the certificates of host names. ``served`` is what was found last. ``thumbprint`` is that of the account
    with which certificates are ordered, "" without one.

    ``report`` is called with each new problem of a file, and the file. ``endpoint_domain`` has the endpoints of
    workloads. What was served before stays in service while a secret of its domain cannot be used.
    """

    def __init__(
        self,
        folders: CertificateFolders,
        secrets: SecretReader,
        clock: Clock,
        endpoint_domain: str,
        proofs: Proofs,
        report: Callable[[str, str], None],
    ) -> None:
        self.served = Served()
        self.thumbprint = ""
        self._directory = CertificateDirectory(folders.shared) if folders.shared is not None else None
        self._folders = folders
        self._opened = clock.monotonic()
        self._former = FormerCertificates(folders.former)
        self._secrets = secrets
        self._clock = clock
        self._endpoint_domain = endpoint_domain
        self._proofs = proofs
        self._report = report
        self._issuer: Issuing | None = None
        self._table: RouteTable | None = None
        self._due = float("-inf")
        self._reported: dict[str, str] = {}
        self._hosts: dict[str, SecureHost] = {}

    def use(self, issuer: Issuing, thumbprint: str) -> None:
        """Let ``issuer`` obtain the certificates that are missing; ``thumbprint`` is that of its account."""
        self._issuer, self.thumbprint = issuer, thumbprint

    def refresh_soon(self) -> None:
        """Read everything again with the next update."""
        self._due = float("-inf")

    def domain_of(self, host: str) -> str:
        """The domain that declares ``host``; "" for an endpoint of a workload."""
        secure_host = self._hosts.get(host)
        return secure_host.domain if secure_host is not None else ""

    async def update(self, table: RouteTable) -> None:
        """Find the certificates for ``table``, if it is another one or files may have changed."""
        now = self._clock.monotonic()
        if table is self._table and now < self._due:
            return
        self._table, self._due = table, now + REFRESH_SECONDS
        selection = await asyncio.to_thread(self._find, table)
        if selection.served != self.served:
            self.served = selection.served
        self._proofs.want(selection.domains)
        if self._issuer is not None:
            self._issuer.want(selection.ordered, selection.dns)
        if self._directory is not None:
            for path, problem in self._directory.problems.items():
                if self._reported.get(path) != problem:
                    self._report(path, problem)
            self._reported = dict(self._directory.problems)

    def _find(self, table: RouteTable) -> _Found:
        problems: dict[str, list[str]] = {}
        self._hosts = dict(secure_hosts(table, problems))
        shared: tuple[PemCertificate, ...] = ()
        if self._directory is not None:
            formers = self._formers(self._directory.path)
            self._directory.refresh({former.certificate.source: former.certificate for former in formers})
            shared = self._directory.certificates
        now = self._clock.now()
        hosts, options, own, with_secrets = self._collect_declared(now, problems)
        serving = select_certificates(hosts, shared, now).serving | own
        ordered: dict[str, str] = {}
        not_renewed: dict[str, str] = {}
        if self._issuer is not None:
            lacking_own = (host for host in hosts.keys() - serving.keys() if self._is_issued(host))
            ordered = {host: self._proof_domain(host, hosts[host]) for host in lacking_own}
            issued = select_certificates(ordered.keys(), self._issuer.certificates, now).serving
            serving = self._issued_before(ordered.keys(), now) | issued | serving
            renewed = ordered.keys() & serving.keys()
            not_renewed = {host: text for host, text in self._issuer.problems.items() if host in renewed}
        # What is ordered has its certificate from the directory of issued ones, or had.
        files = {certificate.source for certificate in shared}
        of_files = {host for host, match in serving.items() if host in ordered or match.certificate.source in files}
        self._remember(with_secrets | of_files, serving, options)
        domains = {site.domain for site in table.sites} | {stream.domain for stream in table.streams}
        domains.discard("")
        unverified = {name: text for name, text in self._proofs.unproven.items() if name in domains}
        lacking = select_certificates(hosts.keys() - serving.keys(), shared, now).problems
        reasons = {host: self._why(host, hosts[host], problem) for host, problem in lacking.items()}
        without_domain = {host: reason for host, reason in reasons.items() if not hosts[host].domain}
        by_domain: dict[str, dict[str, str]] = {}
        for host, reason in reasons.items():
            by_domain.setdefault(hosts[host].domain, {})[host] = reason
        missing = {domain: list(without_tls(host_reasons)) for domain, host_reasons in by_domain.items()}
        parts = _by_domain(problems), _by_domain(missing)
        awaited = frozenset(text for texts in parts[1].values() for text in texts if text.endswith(_AWAITED))
        served = Served(serving, options, *parts, unverified, not_renewed, without_domain, reasons, awaited)
        dns = frozenset(host for host in ordered if hosts[host].dns)
        return _Found(served, ordered, {*domains, *ordered.values()}, dns)

    def _is_issued(self, host: str) -> bool:
        return self._issuer is not None and ("*" not in host or self._issuer.wildcards)

    def _collect_declared(self, now: float, problems: dict[str, list[str]]) -> _Declared:
        """What domains declare; ``problems`` gets why that cannot be served."""
        declared = _Declared(dict(self._hosts), {}, {}, set())
        by_tls: dict[Tls, list[str]] = {}
        for host, secure_host in self._hosts.items():
            by_tls.setdefault(secure_host.tls, []).append(host)
        for tls, names in by_tls.items():
            domains = {self._hosts[name].domain for name in names}
            if tls.server_certificate is not None or tls.client_certificate is not None:
                declared.with_secrets.update(names)
            try:
                options = self._options(tls)
            except (EngineError, CertificateError) as error:
                self._serve_former(tls, names, declared, now)
                stays = "what was served before stays" if declared.hosts.keys() >= {*names} else "TLS is not served"
                _add_problem(problems, domains, f"{stays}: {error}")
                continue
            self._serve_own(tls, names, declared, problems)
            if options != TlsOptions():
                declared.options.update(dict.fromkeys(names, options))
        return declared

    def _serve_former(self, tls: Tls, names: Iterable[str], declared: _Declared, now: float) -> None:
        """Serve ``names`` as before, since their options cannot be used; others are not served.

        One whose clients need a certificate now is served only if they needed one before.
        """
        former = self._former.by_host()
        for name in names:
            last = former.get(name)
            if last is None or (tls.client_certificate is not None and not last.options.authorities):
                del declared.hosts[name]
                continue
            if last.options != TlsOptions():
                declared.options[name] = last.options
            if (match := last.match(now)) is not None:
                declared.serving[name] = match

    def _serve_own(self, tls: Tls, names: list[str], declared: _Declared, problems: dict[str, list[str]]) -> None:
        """Serve ``names`` with the certificate of their domain, or with the one before if that cannot be used."""
        now, domains = self._clock.now(), {self._hosts[name].domain for name in names}
        faults: dict[str, list[str]] = {}
        serving = select_certificates(names, self._own(tls, domains, faults), now).serving
        declared.serving.update(serving)
        lacking = names if tls.server_certificate is not None else []
        former = self._former.by_host()
        matches = {name: former[name].match(now) for name in lacking if name in former and name not in serving}
        stays = {name: match for name, match in matches.items() if match is not None}
        declared.serving.update(stays)
        for domain, texts in faults.items():
            note = "; the one before stays in service" if stays else ""
            _add_problem(problems, {domain}, f"{'; '.join(texts)}{note}")

    def _issued_before(self, hosts: Collection[str], now: float) -> dict[str, CertificateMatch]:
        """The certificates of ``hosts`` that were issued, should their files be damaged now."""
        formers = (former for former in self._formers(self._folders.former.parent) if former.host in hosts)
        matches = {former.host: former.match(now) for former in formers}
        return {host: match for host, match in matches.items() if match is not None}

    def _formers(self, folder: Path) -> Iterator[Former]:
        """What hosts were served with last, of the files below ``folder``, the oldest first."""
        for former in sorted(self._former.by_host().values(), key=lambda former: former.certificate.not_before):
            if folder in Path(former.certificate.source).parents:
                yield former

    def _remember(
        self, hosts: Iterable[str], serving: Mapping[str, CertificateMatch], options: Mapping[str, TlsOptions]
    ) -> None:
        """Remember what ``hosts`` are served with, and at a start of the daemon also what others were.

        Workloads and domains become known one by one.
        """
        matches = {host: serving[host] for host in hosts if host in serving}
        formers = {host: Former(host, *match, options.get(host, TlsOptions())) for host, match in matches.items()}
        if self._clock.monotonic() < self._opened + REFRESH_SECONDS:
            formers = {
                host: former for host, former in self._former.by_host().items() if host not in self._hosts
            } | formers
        self._former.replace(formers)

    def _why(self, host: str, secure_host: SecureHost, problem: str) -> str:
        """Why a host has no certificate that can be served."""
        if self._issuer is not None and self._is_issued(host):
            unproven = self._proofs.unproven.get(self._proof_domain(host, secure_host))
            problem = unproven or self._issuer.problems.get(host) or self._awaited_text(host)
        return problem

    def _awaited_text(self, host: str) -> str:
        """That the certificate of ``host`` is ordered; when the former one expired, if there was one."""
        ends = (
            [certificate.not_after for certificate in self._issuer.certificates if host in certificate.names]
            if self._issuer
            else []
        )
        return f"its certificate expired at {format_iso_time(max(ends))}, {_RENEWED}" if ends else _AWAITED

    def _proof_domain(self, host: str, secure_host: SecureHost) -> str:
        if secure_host.domain:
            return secure_host.domain
        return self._endpoint_domain if host.endswith(f".{self._endpoint_domain}") else host.partition(".")[2]

    def _options(self, tls: Tls) -> TlsOptions:
        """The options of a domain's port. Raises EngineError and CertificateError: without them nothing is served."""
        ciphers = known_ciphers(tls.cipher_suites)
        if tls.cipher_suites and not ciphers:
            raise CertificateError(f"OpenSSL knows none of the ciphers {escape_text(', '.join(tls.cipher_suites))}")
        authorities = ""
        if tls.client_certificate is not None:
            link = tls.client_certificate.secret_link
            try:
                authorities = read_authorities(b"\n".join(secret_parts(self._secret(link), *_PARTS)))
            except CertificateError as error:
                raise CertificateError(f"the client certificate {link}: {error}") from None
        return TlsOptions(_VERSIONS.get(tls.min_protocol_version, TlsOptions().oldest), ciphers, authorities)

    def _own(self, tls: Tls, domains: set[str], problems: dict[str, list[str]]) -> list[PemCertificate]:
        """The certificate that a domain's port names; another one is better than none if it cannot be used."""
        unknown = set(tls.cipher_suites) - set(known_ciphers(tls.cipher_suites))
        if unknown:
            _add_problem(
                problems, domains, f"OpenSSL does not know the ciphers {escape_text(', '.join(sorted(unknown)))}"
            )
        if tls.server_certificate is None:
            return []
        link = tls.server_certificate.secret_link
        try:
            certificate = read_secret(self._secret(link), link)
        except (EngineError, CertificateError) as error:
            _add_problem(problems, domains, f"the server certificate {link}: {error}")
            return []
        if not certificate.not_before <= self._clock.now() < certificate.not_after:
            _add_problem(problems, domains, f"the server certificate {link} has expired, or is not valid yet")
        return [certificate]

    def _secret(self, link: str) -> SecretValue:
        """The data of a secret. Raises EngineError."""
        return self._secrets(Key(Kind.SECRET, "", link.rpartition("/")[2]))


def without_tls(reasons: Mapping[str, str]) -> Iterator[str]:
    """A text for each reason why hosts have no certificate, with these hosts."""
    by_reason: dict[str, list[str]] = {}
    for host, reason in reasons.items():
        by_reason.setdefault(reason, []).append(host)
    for reason, hosts in by_reason.items():
        more = f" and {len(hosts) - _MOST_HOSTS} more" if len(hosts) > _MOST_HOSTS else ""
        names = f"{', '.join(sorted(hosts)[:_MOST_HOSTS])}{more}"
        yield f"{names} {'is' if len(hosts) == 1 else 'are'} not served with TLS: {reason}"


def known_ciphers(ciphers: Iterable[str]) -> tuple[str, ...]:
    """Those of ``ciphers`` that OpenSSL has, in order."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    supported = {get_cipher["name"] for get_cipher in context.get_ciphers()}
    return tuple(cipher for cipher in ciphers if cipher in supported)


def secure_hosts(table: RouteTable, problems: dict[str, list[str]]) -> Iterator[tuple[str, SecureHost]]:
    """The host names of ``table`` that are served with TLS, ``*.NAME`` for all below NAME.

    One whose ports want different TLS is left out: the handshake shows the name, and not the port.
    """
    sites = {site.id: site for site in table.sites}
    hosts: dict[str, SecureHost] = {}
    refused = set()
    for address, entry in table.hosts.items():
        host, _, number = address.rpartition(":")
        site = sites.get(entry.site)
        if host == "*" or (not site.secure if site is not None else int(number) != HTTPS):
            continue
        name = f"*{host}" if host.startswith(".") else host
        mine = SecureHost(site.tls, site.domain, site.dns) if site is not None else SecureHost()
        if hosts.setdefault(name, mine).tls != mine.tls:
            refused.add(name)
            _add_problem(problems, {mine.domain}, f"{name} is not served with TLS: its ports have different `tls`")
    yield from ((name, host) for name, host in hosts.items() if name not in refused)


def _add_problem(problems: dict[str, list[str]], domains: Iterable[str], text: str) -> None:
    for domain in domains:
        problems.setdefault(domain, []).append(text)


def _by_domain(problems: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    """``problems`` without those of endpoints of workloads, which no domain declares."""
    return {name: tuple(dict.fromkeys(texts)) for name, texts in problems.items() if name}
