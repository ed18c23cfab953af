"""The certificates of one location: the store that the data plane reads, orders, proofs of domains, and events."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path

from reconciler.engines.context import EngineContext
from reconciler.engines.host.dataplane.acme.issuer import Issuer
from reconciler.engines.host.dataplane.certificates.store import CertificateFolders, CertificateStore
from reconciler.engines.host.dataplane.domain_proofs import DomainProofs
from reconciler.engines.host.signals import LocationSignals
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.reasons import Reason
from reconciler.settings import IngressSettings

ACME = "acme"
"""Name of the directory of the account and its certificates, below that of the data plane."""
PROOFS = "proofs.json"
"""Name of the file with the proofs of domains, in the same place."""
FORMER = "former"
"""Name of the directory of the certificates that domains were served with last, in the same place."""


class SecureRoutes:
    """The certificates of the location of ``context``, whose data plane has its files in ``directory``."""

    def __init__(
        self,
        context: EngineContext,
        ingress: IngressSettings,
        directory: Path,
        signals: LocationSignals,
    ) -> None:
        settings = context.settings
        self._proofs = DomainProofs(
            directory / PROOFS,
            settings.org,
            settings.domains.resolver,
            context.clock,
            self._report_proof,
            self._on_proofs,
        )
        folders = CertificateFolders(ingress.certificates, directory / FORMER)
        self.store = CertificateStore(
            folders, context.secrets, context.clock, settings.endpoint_domain, self._proofs, self._report_file
        )
        self._context = context
        self._acme = ingress.acme
        self._directory = directory / ACME
        self._signals = signals
        self._reroute: Callable[[], None] = lambda: None
        self._issuer: Issuer | None = None

    def open(self, reroute: Callable[[], None]) -> None:
        """Prepare the orders. ``reroute`` is called when there is another certificate."""
        self._reroute = reroute
        if self._acme is None:
            return
        context = self._context
        proven = self._proofs.is_proven
        issuer = Issuer(self._directory, self._acme, proven, context.clock, self._report_order, self._refresh)
        try:
            self.store.use(issuer, issuer.open())
        except EngineError as error:
            self._report(self._location, Reason.CERTIFICATE_FAILED, f"no certificate can be ordered: {error}")
            return
        self._issuer = issuer

    @property
    def dns_hook(self) -> bool:
        """Whether orders can be checked by records of DNS."""
        return self._acme is not None and bool(self._acme.dns_hook)

    def work(self) -> tuple[Coroutine[None, None, None], ...]:
        """What runs until it is cancelled: the lookups of proofs, and the orders."""
        orders = (self._issuer.run(),) if self._issuer is not None else ()
        return self._proofs.run(), *orders

    @property
    def _location(self) -> Key:
        return Key(Kind.LOCATION, "", self._context.location)

    def _refresh(self) -> None:
        self.store.refresh_soon()
        self._reroute()

    def _on_proofs(self) -> None:
        self._refresh()
        if self._issuer is not None:
            self._issuer.wake()

    def _report_proof(self, domain: str, message: str) -> None:
        self._report(Key(Kind.DOMAIN, "", domain), Reason.NOT_VERIFIED, message)

    def _report_file(self, path: str, problem: str) -> None:
        self._report(self._location, Reason.CERTIFICATE_UNUSABLE, f"{path} is not served: {problem}")

    def _report_order(self, host: str, reason: Reason, message: str) -> None:
        domain = self.store.domain_of(host)
        self._report(Key(Kind.DOMAIN, "", domain) if domain else self._location, reason, message)

    def _report(self, key: Key, reason: Reason, message: str) -> None:
        self._signals.report(key, reason, message)
