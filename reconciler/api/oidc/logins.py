"""What logins share: the provider of people, machines that wait, the issuers of CI tokens, and the seal."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from reconciler.api.oidc.device import DeviceLogins
from reconciler.api.oidc.login import PeopleLogin
from reconciler.api.oidc.provider import OidcProvider
from reconciler.clock import Clock
from reconciler.settings import ApiSettings, OidcSettings, SenderSettings, TokenExchangeSettings

_Form = TypeVar("_Form")


class Seal:
    """Seals values that browsers carry for this process, so that nothing is stored meanwhile.

    After a restart, what was sealed before is void.
    """

    def __init__(self, clock: Clock) -> None:
        from cryptography.fernet import Fernet  # only servers at which people log in need it

        self._fernet = Fernet(Fernet.generate_key())
        self._clock = clock

    def seal(self, value: msgspec.Struct) -> str:
        """``value`` as text for a cookie or a form."""
        content = msgspec.json.encode([type(value).__name__, value])
        return self._fernet.encrypt_at_time(content, int(self._clock.now())).decode()

    def open(self, text: str, form: type[_Form], seconds: int) -> _Form | None:
        """The value in ``text``; None if it was not sealed here, in the last ``seconds``, from this ``form``."""
        from cryptography.fernet import InvalidToken

        try:
            content = self._fernet.decrypt_at_time(text.encode("utf-8", "replace"), seconds, int(self._clock.now()))
        except InvalidToken:
            return None
        name, value = msgspec.json.decode(content)
        return msgspec.convert(value, form) if name == form.__name__ else None


class Logins:
    """Logins of people at the provider of the settings."""

    def __init__(self, oidc: OidcSettings, endpoint: str, clock: Clock) -> None:
        callback = f"{endpoint}/login/callback"
        self.endpoint = endpoint
        self.cookie_path = urlsplit(callback).path
        self.people = PeopleLogin(oidc, callback, clock)
        self.devices = DeviceLogins(clock)
        self.seal = Seal(clock)


class TokenIssuers:
    """The issuers of tokens: of CI jobs, by the rules for token exchange, and of senders of webhooks."""

    def __init__(self, api: ApiSettings | None, clock: Clock) -> None:
        self.rules = api.token_exchange if api is not None else ()
        senders = [webhook.oidc for webhook in api.webhooks if webhook.oidc is not None] if api is not None else []
        issuers = {(rule.issuer, rule.ca_file) for rule in self.rules} | {
            (sender.issuer, sender.ca_file) for sender in senders
        }
        self._providers = {issuer: OidcProvider(*issuer, clock) for issuer in issuers}

    def of(self, rule: TokenExchangeSettings | SenderSettings) -> OidcProvider:
        """The provider of ``rule``."""
        return self._providers[rule.issuer, rule.ca_file]


def logins_of(api: ApiSettings | None, clock: Clock) -> Logins | None:
    """The logins of people; None if the settings have no ``oidc``."""
    return Logins(api.oidc, api.endpoint, clock) if api is not None and api.oidc is not None else None
