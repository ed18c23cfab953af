"""Secrets and certificates that others replace on this host are taken up at once, long before the next check."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from pathlib import Path

from reconciler.engines.host.dataplane.haproxy.program import find_program
from tests.daemon.test_damaged_proxy_files import SHARED, proxy_harness, wait
from tests.daemon.test_loop_secrets import SECRET
from tests.support.certificates import authority, issue
from tests.support.programs import skip_unless
from tests.support.rule_cases import private
from tests.support.sandbox import GVC, DaemonSandbox, eventually

SOON = 20.0
"""Seconds on a slow machine; the next check of a secret is after five minutes, that of a certificate after one."""


def mounted(directory: Path, version: str, text: str) -> None:
    """Mount the secret ``text`` as Kubernetes does: files are links through ``..data``, which is replaced."""
    private(directory / f"..{version}" / "db", text)
    fresh = directory / "..data_tmp"
    fresh.symlink_to(f"..{version}")
    fresh.replace(directory / "..data")
    if not (directory / "db").is_symlink():
        (directory / "db").symlink_to("..data/db")


def test_a_secret_that_is_replaced_is_applied_at_once(tmp_path: Path) -> None:
    directory = tmp_path / "host"
    directory.mkdir()
    mounted(directory, "first", "correct-horse")
    sandbox = DaemonSandbox(tmp_path, {"shop/gvc.yaml": GVC, "db.yaml": SECRET})
    sandbox.configure(secrets={"directory": str(directory)}, drift={"interval": "5m"})
    with sandbox.daemon() as daemon:
        eventually(lambda: "secret/db" in sandbox.recorded(), "the first commit is applied")
        before = sandbox.recorded()["secret/db"].digest
        mounted(directory, "second", "battery-staple")
        eventually(lambda: sandbox.recorded()["secret/db"].digest != before, "the new value is applied", SOON)
        eventually(lambda: daemon.logged("reconciled", reason="secret", outcome="applied"), "it is logged")
        mounted(directory, "third", "correct-horse")
        eventually(lambda: sandbox.recorded()["secret/db"].digest == before, "and the next one", SOON)
        assert daemon.stop() == 0


def test_a_secret_of_systemd_that_is_replaced_is_applied_at_once(tmp_path: Path) -> None:
    directory = tmp_path / "credentials"
    file = private(directory / "db", "correct-horse")
    sandbox = DaemonSandbox(tmp_path, {"shop/gvc.yaml": GVC, "db.yaml": SECRET.replace("file:", "credential:")})
    with sandbox.daemon(CREDENTIALS_DIRECTORY=str(directory)):
        eventually(lambda: "secret/db" in sandbox.recorded(), "the first commit is applied")
        before = sandbox.recorded()["secret/db"].digest
        private(directory / "new", "battery-staple").replace(file)
        eventually(lambda: sandbox.recorded()["secret/db"].digest != before, "the new value is applied", SOON)


def shown_certificate(port: int) -> bytes:
    """The certificate that is shown for the shared host; b"" while nothing is served."""
    context = ssl.create_default_context(cadata=authority().chain_pem.decode())
    with (
        suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname=SHARED) as channel,
    ):
        return channel.getpeercert(binary_form=True) or b""
    return b""


@skip_unless(find_program() is not None, "HAProxy is not installed")
def test_a_certificate_that_is_renewed_is_served_at_once(tmp_path: Path) -> None:
    with proxy_harness(tmp_path) as harness, harness.sandbox.daemon():
        wait(harness.serves, "all is served")
        before = shown_certificate(harness.port)
        renewed = tmp_path / "certificates" / "new"
        renewed.write_bytes(issue(SHARED, end=91.0).pem)
        renewed.replace(tmp_path / "certificates" / "shop.pem")
        eventually(lambda: shown_certificate(harness.port) not in (b"", before), "the new one is served", SOON)
