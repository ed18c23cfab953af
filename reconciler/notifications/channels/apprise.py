"""The channel for chats, mail and pagers: Apprise, imported by a child process for each message.

Apprise is an extra of the package, with plugins that speak to a hundred services; none of it is loaded in the daemon.
"""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec

from reconciler.notifications.bodies import format_text
from reconciler.notifications.channels.channel import SendFailed, SendRefused
from reconciler.notifications.channels.secret_files import SecretFiles
from reconciler.notifications.message import Message, State
from reconciler.notifications.severity import Severity
from reconciler.settings.notifications import AppriseChannelSettings
from reconciler.tasks import wait_or_kill

SECONDS = 30.0
"""Seconds that the child may take, imports included."""
_KILL_SECONDS = 0.5
_MODULE = "reconciler.notifications.channels.apprise_child"
_PASSED = ("PATH", "LANG", "TZ", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
"""Variables that the child gets; the daemon may have others that are secrets."""

_KINDS = {
    Severity.INFO: "info",
    Severity.WARNING: "warning",
    Severity.ERROR: "failure",
    Severity.CRITICAL: "failure",
}


class AppriseRequest(msgspec.Struct, frozen=True):
    """What the child sends: to all ``urls``, with a ``kind`` that Apprise knows."""

    urls: list[str]
    title: str
    body: str
    kind: str


class AppriseAnswer(msgspec.Struct, frozen=True):
    """How that went; ``problem`` is empty, ``missing`` (no Apprise), ``unknown`` (a URL) or ``failed``."""

    problem: str = ""


class AppriseChannel:
    """Sends each message to the services in a file of Apprise URLs, one a line."""

    def __init__(self, name: str, settings: AppriseChannelSettings, secrets: SecretFiles | None = None) -> None:
        self.name = name
        self._secrets = secrets or SecretFiles()
        self._settings = settings

    async def send(self, message: Message, reference: str) -> str:  # noqa: ARG002 - it cannot edit
        """Send ``message``; returns "". Raises SendRefused and SendFailed."""
        file = self._settings.url_file
        title, _, body = format_text(message).partition("\n")
        request = AppriseRequest(self._secrets.read_lines(file, "URL"), title, body or title, choose_kind(message))
        answer = await _ask_child(request)
        if answer.problem == "missing":
            raise SendFailed("Apprise is not installed: install the package with its extra `notify`")
        if answer.problem == "unknown":
            raise SendRefused(f"Apprise knows no service for a URL in {file}")
        if answer.problem:
            raise SendFailed(f"a service in {file} cannot be reached, or refuses the message")
        return ""

    async def close(self) -> None:
        """Nothing is open: a child ends with its message."""


def choose_kind(message: Message) -> str:
    """The kind of ``message`` in the words of Apprise, from which services make colours and icons."""
    if message.state is State.SUCCESS:
        return "success"
    return _KINDS[message.severity]


async def _ask_child(request: AppriseRequest) -> AppriseAnswer:
    environ = {name: os.environ[name] for name in _PASSED if name in os.environ}
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        _MODULE,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environ,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(SECONDS):
            output, _ = await child.communicate(msgspec.json.encode(request))
        return msgspec.json.decode(output, type=AppriseAnswer)
    except TimeoutError:
        raise SendFailed(f"Apprise has not sent it in {SECONDS:.0f} s", reached=True) from None
    except msgspec.DecodeError:
        raise SendFailed(f"Apprise ended with code {child.returncode}", reached=True) from None
    finally:
        await wait_or_kill(child, _KILL_SECONDS)
