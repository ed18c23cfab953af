"""Who calls: the peer of the unix socket, or the bearer of a credential."""

from __future__ import annotations

import asyncio
import functools
import os
import pwd
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from starlette.requests import Request

from reconciler.access.agents import AGENT_PREFIX
from reconciler.access.lives import ACCOUNT_PREFIX, account_key
from reconciler.access.people import Login, person_fields
from reconciler.access.rules import SUPERUSERS, VIEWERS, Caller
from reconciler.access.store import KEY_PREFIX, SESSION_PREFIX, AccessStore
from reconciler.api.connections import Peer
from reconciler.api.page.sessions import read_cookie
from reconciler.api.problems import Problem
from reconciler.api.rate_limits import FailedLogins, network_of
from reconciler.api.reading import org_of
from reconciler.clock import Clock
from reconciler.engines.plugin import make_all_readers
from reconciler.engines.reading import Sender, SupportsSenders, TcpAddress, TcpLink
from reconciler.engines.workload.tokens import TOKEN_PREFIX, TokenOwner, parse_token
from reconciler.errors import EngineError
from reconciler.manifests.links import parse_link
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Workload
from reconciler.private_files import open_regular
from reconciler.records.store import Records
from reconciler.settings import Settings

SENDER_THREADS = 8
BOOTSTRAP_FILE = "bootstrap-token"
"""The file in the state directory with the token for the first login."""


class Authenticator:
    """Knows the credentials that this program issues, for the ``settings`` and resources that are applied."""

    def __init__(self, store: AccessStore, settings: Settings, records: Records, clock: Clock) -> None:
        self._store = store
        self._settings = settings
        self._records = records
        self._clock = clock
        self.sender_threads = ThreadPoolExecutor(SENDER_THREADS, "senders")
        """Threads for questions to locations about senders: one that is silent delays no other request."""
        self._failed_addresses = FailedLogins("this address", clock.monotonic)
        self._failed_accounts = FailedLogins("this account", clock.monotonic)

    async def caller(self, request: Request) -> Caller:
        """The caller of ``request``: by its header ``Authorization``, the cookie of the page, or its unix socket.

        A valid credential counts whatever others have sent. Raises Problem 401, 429 after many of them, and 503 if the
        location of a workload does not answer whether it sends the request.
        """
        header = request.headers.get("authorization", "")
        if not header and (session := read_cookie(request)):
            # Nobody guesses a session: one that has ended need not count as a failed login.
            if (caller := self._session(session)) is None:
                raise make_unauthorized_problem("the session of this browser has ended; log in again")
            return caller
        if not header:
            peer = getattr(request.state, "peer", None)
            if peer is None:
                raise make_unauthorized_problem("send a credential in the header `Authorization`")
            return peer_caller(peer)
        credential = parse_bearer_token(header)
        is_token = credential.startswith(TOKEN_PREFIX)
        owner = await self._workload(credential, request) if is_token else self.find_bearer(credential)
        if owner is None:
            problem = make_unauthorized_problem("the credential is unknown, expired or revoked")
            raise self.refusal(request, problem, self._store.account_named_by(credential))
        self.accept(request, owner.principal)
        return owner

    def check_account(self, account: str) -> None:
        """Raise Problem 429 while ``account`` has to wait: for guesses at what is short enough to be guessed."""
        self._failed_accounts.check(account)

    def refusal(self, request: Request, problem: Problem, account: str = "") -> Problem:
        """Count a credential that was refused, of ``account`` if it names one; returns the problem to answer with.

        It is ``problem``, or 429 while the address or the account has to wait for its earlier failures.
        """
        network = network_of(address_of(request))
        try:
            self._failed_addresses.check(network)
            self._failed_accounts.check(account)
        except Problem as waiting:
            return waiting
        self._failed_addresses.add(network)
        if account:
            self._failed_accounts.add(account)
        return problem

    def accept(self, request: Request, account: str = "") -> None:
        """A valid credential, or a valid signature, ends the counts of its address and its account."""
        self._failed_addresses.forget(network_of(address_of(request)))
        self._failed_accounts.forget(account)

    def find_bearer(self, credential: str) -> Caller | None:
        """The caller with the key, session or token ``credential``; None if it is not valid."""
        if credential.startswith(KEY_PREFIX):
            key_record = self._store.key_account(credential)
            return (
                Caller(account_key(key_record[0]), credential=f"key {key_record[1]}")
                if key_record is not None
                else None
            )
        if credential.startswith(SESSION_PREFIX):
            return self._session(credential)
        return self._agent(credential) if credential.startswith(AGENT_PREFIX) else None

    def _agent(self, token: str) -> Caller | None:
        """The agent whose registration token is ``token``. Raises Problem 503 until the agent is applied."""
        agent = self._store.agents.owner(token)
        if agent is None:
            return None
        key = Key(Kind.AGENT, "", agent.name)
        life = self._records.applied.created_at(key)
        if life is None and agent.life is None:
            raise Problem(503, f"{key} is not applied yet; try again", headers={"Retry-After": "5"})
        if agent.life is None and life is not None:
            self._store.agents.bind(agent, life)
        elif agent.life != life:
            return None
        return Caller(str(key), credential=f"token {agent.id}")

    async def _workload(self, token: str, request: Request) -> Caller | None:
        """The identity of the workload with ``token``, or the workload if it has none.

        Raises Problem 403 unless a process of that workload sends the request.
        """
        owner = parse_token(token)
        is_sender = await self._check_sender(owner, token, request) if owner is not None else None
        records = self._records.applied.get(owner.key) if owner is not None and is_sender is not None else ()
        if owner is None or not records:
            return None
        if not is_sender:
            # It is no guess, so the address need not wait.
            raise Problem(403, f"this token is valid for {owner.key} alone, and another program sent the request")
        link = msgspec.json.decode(records[0].body, type=Workload).spec.identity_link
        principal = parse_link(link, self._settings.org, owner.key.gvc, Kind.IDENTITY).target if link else owner.key
        return Caller(str(principal), credential=f"token of {owner.key}", workload=str(owner.key))

    async def _check_sender(self, owner: TokenOwner, token: str, request: Request) -> bool | None:
        """Whether a process of ``owner`` sends the request; None if ``token`` is not its token, or not any more.

        The sender is found out once for each client of a connection.
        """
        senders: dict[tuple[str, str], bool] = getattr(request.state, "senders", {})
        mark = (token, address_of(request))
        ask = functools.partial(self._ask_reader, owner, token, _sender_of(request), senders.get(mark))
        try:
            is_sender = await asyncio.get_running_loop().run_in_executor(self.sender_threads, ask)
        except EngineError as error:
            raise Problem(503, str(error), headers={"Retry-After": "5"}) from None
        if is_sender is not None:
            senders[mark] = is_sender
        return is_sender

    def _ask_reader(self, owner: TokenOwner, token: str, sender: Sender | None, earlier: bool | None) -> bool | None:
        """See ``_check_sender``; ``earlier`` is an answer from before. It blocks for as long as a location takes."""
        for reader in make_all_readers(self._settings):
            here = reader.location == owner.location
            if here and isinstance(reader, SupportsSenders) and reader.has_token(owner.key, token):
                if earlier is not None:
                    return earlier
                return sender is not None and reader.is_sender(owner.key, token, sender)
        return None

    def _session(self, credential: str) -> Caller | None:
        session = self._store.session(credential)
        if session is None or not session.login:
            return session.caller if session is not None and self._has_key(session.caller) else None
        login = self._store.people.login(session.login)
        return self.person(login) if login is not None else None

    def _has_key(self, caller: Caller) -> bool:
        """Whether the key with which a browser began its session is still valid; True for other sessions."""
        kind, _, key = caller.credential.partition(" ")
        return kind != "key" or self._store.has_key(caller.principal.removeprefix(ACCOUNT_PREFIX), key)

    def person(self, login: Login) -> Caller | None:
        """The person of ``login``, with the groups of today's settings.

        None if they were removed, were idle too long, or may no longer log in by OpenID Connect.
        """
        user = self._store.people.find(login.user)
        oidc = self._settings.api.oidc if self._settings.api is not None else None
        if user is None or oidc is None or user.issuer != oidc.issuer:
            return None
        spec = org_of(self._records, self._settings.org).spec
        if spec.auth_config.saml_only:
            return None
        timeout = spec.session_timeout_seconds
        if timeout and self._clock.now() - login.used > timeout:
            if self._clock.expiry().is_over(login.used + timeout, login.used):
                self._store.people.end(login.id)
            return None
        self._store.people.use(login)
        groups = frozenset(
            str(Key(Kind.GROUP, "", oidc.groups[group])) for group in login.groups if group in oidc.groups
        )
        return Caller(f"{Kind.USER}/{user.name}", groups, f"login {login.id}", person_fields(user))


def _sender_of(request: Request) -> Sender | None:
    """The process of a unix socket, or the connection; None if the server does not know it."""
    peer, client, server = getattr(request.state, "peer", None), request.client, request.scope.get("server")
    if peer is not None:
        pid: int = peer.pid
        return pid
    if client is None or server is None or server[1] is None:
        return None
    return TcpLink(TcpAddress(client.host, client.port), TcpAddress(*server), address_of(request))


def parse_bearer_token(header: str) -> str:
    """The credential in the header ``Authorization``, with or without the scheme Bearer in any case."""
    scheme, _, rest = header.strip().partition(" ")
    return rest.strip() if scheme.lower() == "bearer" else header.strip()


def make_unauthorized_problem(message: str) -> Problem:
    """The problem of a request without a valid credential."""
    return Problem(401, message, headers={"WWW-Authenticate": "Bearer"})


def peer_caller(peer: Peer) -> Caller:
    """Root and the user of the daemon are superusers; others are readers, whom the kernel lets connect."""
    reader = peer.uid not in (0, os.geteuid())
    groups = frozenset({str(VIEWERS if reader else SUPERUSERS)})
    return Caller(f"{Kind.USER}/{user_name(peer.uid)}", groups, f"unix socket, uid {peer.uid}", reader=reader)


def address_of(request: Request) -> str:
    """Where ``request`` comes from: the address of a client over TCP, as trusted proxies name it, else "unix"."""
    return str(request.scope["client_address"])


@functools.lru_cache(maxsize=256)
def user_name(uid: int) -> str:
    """The name of a user of this host."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


def write_bootstrap(store: AccessStore, state: Path) -> None:
    """At the first start, write a token that a superuser can log in with once, readable by the daemon's user alone."""

    def publish(text: str) -> None:
        with os.fdopen(open_regular(state / BOOTSTRAP_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as file:
            file.write(f"{text}\n")

    store.make_bootstrap(publish)
