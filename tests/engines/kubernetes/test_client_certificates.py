"""Certificates of an API server by their time: the message says which clock, or what to renew."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from reconciler.clock import SystemClock
from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.errors import ClusterError
from reconciler.reasons import Reason
from reconciler.settings import ClusterSettings
from tests.kubernetes.cluster.credentials import AUTHORITY, write_kubeconfig
from tests.support.certificates import issue


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (-9.0, -1.0, ("a certificate has expired", "renew it")),
        (1.0, 9.0, ("a certificate is not valid yet", "compare the clocks of this host and the cluster")),
    ],
    ids=["expired", "not valid yet"],
)
async def test_a_certificate_out_of_its_time_is_named(
    tmp_path: Path, start: float, end: float, words: tuple[str, ...]
) -> None:
    (tmp_path / "host.pem").write_bytes(issue("127.0.0.1", start=start, end=end, by=AUTHORITY).pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "host.pem")
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    api = KubeApi(ClusterSettings(write_kubeconfig(tmp_path / "kubeconfig", url, {"token": "x"})), SystemClock())
    async with server:
        with pytest.raises(ClusterError) as raised:
            await api.read_version()
        await api.close()
    assert raised.value.reason is Reason.CREDENTIALS_REFUSED
    assert all(text in str(raised.value) for text in (url, *words))
