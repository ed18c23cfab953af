"""Words of other programs: what each try has anew is left out, and what people need stays."""

from __future__ import annotations

import time

import pytest

from reconciler.foreign_words import strip_variation

DIGEST = "sha256:" + "5f" * 32
ID, OTHER_ID = "0a" * 32, "b7" * 32
UID, OTHER_UID = "284445b1-4517-4a82-aa95-09e2f70d66ac", "9c2f6a10-7d3e-4b58-8f01-6c1de2a3b4c5"

TRIES = {
    "curl: connection": (
        "Failed to connect to 127.0.0.1 port 1 after {} ms: Could not connect to server",
        ("0", "3", "1500"),
        "Failed to connect to 127.0.0.1 port 1: Could not connect to server",
    ),
    "curl: timeout": (
        "Operation timed out after {} milliseconds with {} out of 4096 bytes received",
        (("30001", "0"), ("30012", "77")),
        "Operation timed out",
    ),
    "curl: cut": ("transfer closed with {} bytes remaining to read", ("3", "1200"), "transfer closed"),
    "git: cut": ("error: {} bytes of body are still expected", ("7", "99"), "error: bytes of body are still expected"),
    "ssh: addresses": (
        "Connection closed by {} port 22",
        ("192.0.2.3", "2001:db8::7", "UNKNOWN"),
        "Connection closed by the other side",
    ),
    "Go: ports": (
        "lookup registry.example on 10.96.0.10:53: read udp {}->10.96.0.10:53: i/o timeout",
        ("10.244.0.5:43210", "[fd00::5]:51002"),
        "lookup registry.example on 10.96.0.10:53: read udp 10.96.0.10:53: i/o timeout",
    ),
    "Go: patience": (
        'Get "http://10.244.1.17:8080/alive": {}',
        (
            "context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
            "net/http: request canceled (Client.Timeout exceeded while awaiting headers)",
            "net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)",
            "context deadline exceeded",
        ),
        'Get "http://10.244.1.17:8080/alive": context deadline exceeded',
    ),
    "Go: time": (
        "x509: certificate has expired or is not yet valid: current time {} is after 2026-01-01T00:00:00Z",
        ("2026-11-30T08:00:00Z", "2026-11-30T10:00:01+02:00"),
        "x509: certificate has expired or is not yet valid: now is after 2026-01-01T00:00:00Z",
    ),
    "Go: duration": ("giving up after {}: refused", ("10.0213s", "1m3.2s"), "giving up: refused"),
    "kubelet: pause": (
        "back-off {} restarting failed container=main pod=web-1_shop({})",
        (("10s", UID), ("5m0s", OTHER_UID)),
        "back-off restarting failed container=main pod=web-1_shop",
    ),
    "kubelet: sandbox": (
        'failed to setup network for sandbox "{}": plugin type="flannel" failed (add): no subnet',
        (ID, OTHER_ID),
        'failed to setup network for sandbox "…": plugin type="flannel" failed (add): no subnet',
    ),
    "kubelet: name": (
        'name "main_web-1_shop_{}_{}" is reserved',
        ((UID, "1"), (UID, "2")),
        'name "main_web-1_shop_…" is reserved',
    ),
    "kubelet: pod": (
        "mounting /var/lib/kubelet/pods/{}/volumes/data: permission denied",
        (UID, OTHER_UID),
        "mounting /var/lib/kubelet/pods/…/volumes/data: permission denied",
    ),
    "controller: pod": (
        'pods "web-76d8f9c4b-{}" is forbidden: exceeded quota: small, requested: cpu=2, used: cpu=3, limited: cpu=4',
        ("x7k2p", "bb9zq"),
        'pods "web-76d8f9c4b-…" is forbidden: exceeded quota: small, requested: cpu=2, used: cpu=3, limited: cpu=4',
    ),
    "cloud: request": (
        "AccessDenied: not allowed status code: 403, request id: {}, host id: {}=",
        (("17A2B3C4D5E6F708", "abc/def+ghi"), ("90AB12CD34EF5678", "jkl/mno+pqr")),
        "AccessDenied: not allowed status code: 403",
    ),
    "cloud: request of the newer library": (
        "https response error StatusCode: 403, RequestID: {}, api error UnauthorizedOperation: no",
        (UID, OTHER_UID),
        "https response error StatusCode: 403, api error UnauthorizedOperation: no",
    ),
    "runtime: process": (
        "error mounting /proc/{}/ns/net: gone (pid {})",
        (("4711", "4711"), ("12", "12")),
        "error mounting /proc/…/ns/net: gone (pid …)",
    ),
    "Podman: container": (
        "rootlessport cannot expose port 80, container {} ended",
        (ID, OTHER_ID),
        "rootlessport cannot expose port 80, container … ended",
    ),
    "Podman: pull": (
        'storing blob to file "/var/tmp/container_images_storage{}/1": no space left on device',
        ("1234567890", "99887766"),
        'storing blob to file "/var/tmp/container_images_storage…/1": no space left on device',
    ),
    "volume: device": ("/dev/loop{}: Input/output error", ("0", "12"), "/dev/loop…: Input/output error"),
    "restic: age": (
        "lock was created at 2026-11-30 08:00:00 ({} ago)",
        ("3m2.5s", "1h0m1s"),
        "lock was created at 2026-11-30 08:00:00",
    ),
    "authority: challenge": (
        "192.0.2.1: Invalid response from http://a.example/.well-known/acme-challenge/{}: 404",
        ("rAnD0m_t0ken-1", "0ther-t0ken_2"),
        "192.0.2.1: Invalid response from http://a.example/.well-known/acme-challenge/…: 404",
    ),
}
"""What says it → its words with places, what tries put there, and what is shown."""

SAME = (
    "did not answer within 60 s; it is tried again after 30 s",
    f"reading blob {DIGEST}: not found",
    f"docker.io/library/nginx@{DIGEST} and example/nginx:{DIGEST.replace(':', '-')}",
    "0/5 nodes are available: 3 Insufficient cpu, 2 node(s) had untolerated taint {a: b}.",
    "mount.nfs: access denied by server while mounting 192.0.2.1:/data on port 2049",
    'pods "redis-0" is forbidden: no; pods "shop-redis" not found',
    f"client '{UID}' has no authorization over scope '/subscriptions/{OTHER_UID}'",
    "commit 0123456789abcdef0123456789abcdef01234567 is not signed",
    "the readiness probe failed: HTTP 503",
)


@pytest.mark.parametrize("name", TRIES)
def test_one_trouble_has_one_message_for_all_tries(name: str) -> None:
    text, tries, shown = TRIES[name]
    found = {strip_variation(text.format(*([words] if isinstance(words, str) else words))) for words in tries}
    assert found == {shown}


@pytest.mark.parametrize("text", SAME)
def test_what_people_need_stays(text: str) -> None:
    assert strip_variation(text) == text


def test_hostile_words_take_no_time() -> None:
    began = time.process_time()
    for part in ("a", "a.", "/tmp/", "request id", "1:2->", 'pods "', "(", " ", "by :", "f" * 63, "[:"):
        strip_variation(part * 100_000)
    assert time.process_time() - began < 20.0
