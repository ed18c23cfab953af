"""The dead man's switch: a URL that is called at intervals, so that its owner notices when no call comes."""

from __future__ import annotations

import ssl

import httpx2

from reconciler.notifications.channels.channel import SendFailed
from reconciler.notifications.channels.secret_files import SecretFiles
from reconciler.notifications.channels.webhook import SECONDS, check_answer, get_host
from reconciler.settings.notifications import HeartbeatSettings

FAIL = "/fail"
"""What follows the URL, in the form of Healthchecks, while something is wrong."""


class Heartbeat:
    """Calls the URL of ``settings``."""

    def __init__(self, settings: HeartbeatSettings, secrets: SecretFiles | None = None) -> None:
        self.settings = settings
        self._secrets = secrets or SecretFiles()
        self._client: httpx2.AsyncClient | None = None

    async def beat(self, troubles: list[str]) -> None:
        """Call the URL: without ``troubles`` as it is, else with ``/fail``, and with them as the body.

        Raises SendError.
        """
        url = self.settings.url
        if self.settings.url_file is not None:
            url = self._secrets.read_line(self.settings.url_file, "URL")
        body = "\n".join(troubles) or "all sources are applied"
        try:
            answer = await self._get_client().post(url.rstrip("/") + FAIL * bool(troubles), content=body.encode())
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise SendFailed(f"{get_host(url)}: {type(error).__name__}") from None
        check_answer(answer, get_host(url), 0.0)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    def _get_client(self) -> httpx2.AsyncClient:
        if self._client is None:
            context = ssl.create_default_context()
            self._client = httpx2.AsyncClient(verify=context, timeout=SECONDS, follow_redirects=False)
        return self._client
