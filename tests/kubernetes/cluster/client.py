"""A small client of an API server for the parts of a cluster that the tests play: kubelets and provisioner."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import msgspec

Object = dict[str, Any]
OnEvent = Callable[[str, Object], Awaitable[None]]
"""Gets ``ADDED``, ``MODIFIED`` or ``DELETED`` and the object."""

RETRY_SECONDS = 0.2
ABSENT_SECONDS = 1.0
"""Between questions for a kind that the server does not have yet."""
IN_FLIGHT = 32
"""Requests at once, watches apart."""


class Client:
    """Requests to the API server of a kubeconfig that has a client's certificate."""

    def __init__(self, kubeconfig: Path) -> None:
        url, trust = read_kubeconfig(kubeconfig)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=IN_FLIGHT)
        timeout = httpx2.Timeout(30.0, pool=None)
        self._http = httpx2.AsyncClient(base_url=url, verify=trust, limits=limits, timeout=timeout, trust_env=False)
        self._lanes = asyncio.Semaphore(IN_FLIGHT)

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Object:
        """The answer to one request; tries again where there is none. Raises httpx2.HTTPStatusError for a refusal."""
        content = None if body is None else msgspec.json.encode(body)
        while True:
            try:
                async with self._lanes:
                    answer = await self._http.request(method, path, content=content, headers={"Content-Type": kind})
                if answer.status_code != 429 and answer.status_code < 500:
                    break
            except httpx2.TransportError:
                pass
            await asyncio.sleep(RETRY_SECONDS)
        answer.raise_for_status()
        decoded: Object = msgspec.json.decode(answer.content)
        return decoded

    async def merge(self, path: str, body: Any) -> Object:
        """Change parts of an object by a JSON merge patch."""
        return await self.request("PATCH", path, body, "application/merge-patch+json")

    async def follow(self, path: str, on_event: OnEvent, query: str = "") -> None:
        """Report each object at ``path`` and each change, for ever; what vanished unseen is reported as deleted."""
        present: dict[str, Object] = {}
        while True:
            try:
                version = await self._list(f"{path}?{query}", present, on_event)
                await self._watch(f"{path}?{query}&watch=1&resourceVersion={version}", present, on_event)
            except httpx2.HTTPStatusError:
                await asyncio.sleep(ABSENT_SECONDS)
            except httpx2.HTTPError:
                await asyncio.sleep(RETRY_SECONDS)

    async def _list(self, path: str, present: dict[str, Object], on_event: OnEvent) -> str:
        answer = await self.request("GET", path)
        listed = {item["metadata"]["uid"]: item for item in answer.get("items") or ()}
        for uid in present.keys() - listed.keys():
            await on_event("DELETED", present.pop(uid))
        for uid, item in listed.items():
            present[uid] = item
            await on_event("ADDED", item)
        version: str = answer["metadata"]["resourceVersion"]
        return version

    async def _watch(self, path: str, present: dict[str, Object], on_event: OnEvent) -> None:
        decoder = msgspec.json.Decoder()
        async with self._http.stream("GET", path, timeout=httpx2.Timeout(30.0, read=None)) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                event = decoder.decode(line)
                if event["type"] == "ERROR":
                    return
                item = event["object"]
                uid = item["metadata"]["uid"]
                if event["type"] == "DELETED":
                    present.pop(uid, None)
                else:
                    present[uid] = item
                await on_event(event["type"], item)


def read_kubeconfig(path: Path) -> tuple[str, ssl.SSLContext]:
    """URL of the server, and what a client proves itself by and trusts."""
    content = json.loads(path.read_text())
    [cluster], [user] = content["clusters"], content["users"]
    authority = base64.b64decode(cluster["cluster"]["certificate-authority-data"]).decode()
    trust = ssl.create_default_context(cadata=authority)
    if "client-key-data" in user["user"]:
        with tempfile.NamedTemporaryFile() as file:  # ssl reads certificates of its own side from files only
            file.write(base64.b64decode(user["user"]["client-certificate-data"]))
            file.write(base64.b64decode(user["user"]["client-key-data"]))
            file.flush()
            trust.load_cert_chain(file.name)
    return cluster["cluster"]["server"], trust
