"""The authorities that programs of tests trust by default: one that has no key, and none of this machine.

OpenSSL, Go and Git read all authorities of a machine whenever a client or a proxy starts: 20 to 80 ms of CPU time.
"""

from __future__ import annotations

import os
from pathlib import Path

AUTHORITIES = {
    "SSL_CERT_FILE": str(Path(__file__).with_name("authority.pem")),
    "SSL_CERT_DIR": "/nonexistent",
    "GIT_SSL_CAPATH": "/nonexistent",
}
"""Variables of the environment of tests; `machine_environ` has those of a program that downloads."""

os.environ.update(AUTHORITIES)


def machine_environ() -> dict[str, str]:
    """The environment of a program that trusts whom this machine trusts."""
    return {name: value for name, value in os.environ.items() if name not in AUTHORITIES}
