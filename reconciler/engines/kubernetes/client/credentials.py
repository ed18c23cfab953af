"""Where a cluster is and how the daemon logs in: a kubeconfig, or the service account of its pod.

lightkube reads both and makes the connection. What it would run or accept without asking is checked here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from pathlib import Path
from time import time

import httpx2
import msgspec
import yaml
from lightkube.config.client_adapter import AsyncClient, ConnectionParams, user_auth, verify_cluster
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import UserExec
from lightkube.core.exceptions import ConfigError

from reconciler.engines.kubernetes.client.http import HttpPool
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from reconciler.settings import ClusterSettings

CONNECT_SECONDS = 10.0
"""Seconds for a connection, and for each part of an answer."""
EXEC_SECONDS = 30.0
"""Seconds that a program for credentials may take."""
RENEW_SECONDS = 60.0
"""Seconds before its end at which a token is renewed."""

_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


def load_config(settings: ClusterSettings) -> SingleConfig:
    """The cluster and the user of ``settings``. Raises EngineError, reason CredentialsRefused, for unusable ones."""
    try:
        config = _read_config(settings)
    except (ConfigError, KeyError, OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.MsgspecError) as error:
        words = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise _make_error(f"{_describe_origin(settings)} cannot be used: {words}") from None
    if config is None:
        raise _make_error(f"{_describe_origin(settings)} has no current context; set `cluster.context`")
    user = config.user
    if user is None:
        raise _make_error(f"{_describe_origin(settings)}: the context {config.context_name} has no user")
    if user.auth_provider:
        raise _make_error(f"{_describe_origin(settings)} uses an auth-provider; Kubernetes removed those: use exec")
    if user.exec and user.exec.command not in settings.allow_exec:
        message = f"{_describe_origin(settings)} runs the program {user.exec.command}; allow it in `cluster.allowExec`"
        raise _make_error(message)
    return config


def _read_config(settings: ClusterSettings) -> SingleConfig | None:
    if settings.kubeconfig is None:
        return KubeConfig.from_service_account().get()
    return KubeConfig.from_file(settings.kubeconfig).get(settings.context or None)


def _describe_origin(settings: ClusterSettings) -> str:
    if settings.kubeconfig is None:
        return "the service account of this pod"
    return f"the kubeconfig {settings.kubeconfig}"


def _make_error(message: str) -> EngineError:
    return EngineError(message, reason=Reason.CREDENTIALS_REFUSED)


def explain_unusable(error: Exception, server: str) -> EngineError:
    """The error for credentials that were there when the connection was made, such as a file with a token."""
    return _make_error(f"the credentials for {server} cannot be used: {error}")


def make_client(config: SingleConfig) -> httpx2.AsyncClient:
    """A client that logs in as ``config`` has it; nothing is sent yet. Raises EngineError for unusable certificates."""
    timeout = httpx2.Timeout(CONNECT_SECONDS)
    try:
        # Proxies of the environment are not used: what reaches the cluster is in the kubeconfig alone.
        client = AsyncClient(config, ConnectionParams(timeout=timeout, trust_env=False))
    except (OSError, ValueError, ConfigError) as error:
        raise _explain_certificates(config, error) from None
    if (auth := _make_exec_auth(config)) is not None:
        client.auth = auth
    return client


def make_pool(config: SingleConfig) -> HttpPool:
    """Connections for requests, which log in the same way. Raises EngineError for unusable certificates."""
    assert config.user is not None
    try:
        context = verify_cluster(config.cluster, config.user, config.abs_file, trust_env=False)
        auth = _make_exec_auth(config) or user_auth(config.user)
    except (OSError, ValueError, ConfigError) as error:
        raise _explain_certificates(config, error) from None
    return HttpPool(config.cluster.server, context, auth, CONNECT_SECONDS)


def _explain_certificates(config: SingleConfig, error: Exception) -> EngineError:
    return _make_error(f"the certificates of the context {config.context_name} cannot be used: {error}")


def _make_exec_auth(config: SingleConfig) -> ExecAuth | None:
    user = config.user
    if user is None or not user.exec or user.token or user.token_file:
        return None
    return ExecAuth(user.exec, config.fname.parent if config.fname is not None else Path.cwd())


class _ExecStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    expiration_timestamp: str = ""


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    status: _ExecStatus = _ExecStatus()


class ExecAuth(httpx2.Auth):
    """Tokens from the program of a kubeconfig, which runs again before one ends and after an answer with 401."""

    def __init__(self, program: UserExec, directory: Path) -> None:
        self._program = program
        self._directory = directory
        self._token = ""
        self._ends = float("inf")
        self._running = asyncio.Lock()

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send ``request`` with a token, and once more with a new one if the first is refused."""
        token = await self._get_token("")
        request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code == 401:
            request.headers["Authorization"] = f"Bearer {await self._get_token(token)}"
            yield request

    async def _get_token(self, refused: str) -> str:
        async with self._running:
            if not self._token or self._token == refused or time() > self._ends - RENEW_SECONDS:
                credential = await self._run()
                self._token, self._ends = credential.token, _parse_end(credential.expiration_timestamp)
            return self._token

    async def _run(self) -> _ExecStatus:
        program = self._program
        if program.apiVersion not in _EXEC_VERSIONS:
            raise _make_error(f"{program.command}: the version {program.apiVersion} of exec is not supported")
        info = {"apiVersion": program.apiVersion, "kind": "ExecCredential", "spec": {"interactive": False}}
        env = {**os.environ, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
        env |= {variable.name: variable.value for variable in program.env or ()}
        output = await self._read_output([program.command, *(program.args or ())], env)
        try:
            status = msgspec.json.decode(output, type=_ExecCredential).status
        except msgspec.MsgspecError:
            raise _make_error(f"{program.command} printed no ExecCredential") from None
        if not status.token:
            raise _make_error(f"{program.command} printed no token; certificates from programs are not supported")
        return status

    async def _read_output(self, argv: Sequence[str], env: dict[str, str]) -> bytes:
        try:
            child = await asyncio.create_subprocess_exec(
                *argv,
                cwd=self._directory,
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            raise _make_error(f"{argv[0]} cannot be run: {error.strerror}") from None
        try:
            async with asyncio.timeout(EXEC_SECONDS):
                output, _ = await child.communicate()
        except TimeoutError:
            child.kill()
            await child.wait()
            raise _make_error(f"{argv[0]} did not end within {EXEC_SECONDS:.0f} s") from None
        if child.returncode:
            # What it printed can contain credentials.
            raise _make_error(f"{argv[0]} ended with code {child.returncode}; run it by hand to see why")
        return output


def _parse_end(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return float("inf")
