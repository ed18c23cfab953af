"""Orders of certificates: each runs in a process of its own, so that it can be ended whatever the authority does."""

from __future__ import annotations

import subprocess
import sys
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path

import msgspec

from reconciler.engines.host.dataplane.acme import dns_hook
from reconciler.engines.host.disk.atomic import write_atomic
from reconciler.errors import EngineError
from reconciler.private_files import open_regular
from reconciler.reasons import Reason

SECONDS = 120.0
"""Seconds until an order is ended."""

LARGEST_ANSWER = 1 << 20
_LARGEST_KEY = 1 << 16
_PROGRAM = "reconciler.engines.host.dataplane.acme.order"


class Order(msgspec.Struct, frozen=True):
    """The order of a certificate for ``host``: the authority's ``directory``, and the account by its key.

    ``ca_file`` has the certificates that the authority itself is checked by; "" for those of the system. With ``hook``,
    the challenge is dns-01: this program sets the record, and the file ``presented`` has it until it is removed.
    """

    host: str
    directory: str
    email: str
    account_key: str
    ca_file: str = ""
    seconds: float = SECONDS - 10
    hook: tuple[str, ...] = ()
    presented: str = ""


class OrderAnswer(msgspec.Struct, frozen=True):
    """The certificate with its chain and key as PEM; or the problem, and how many seconds the authority wants to wait.

    ``retry_after`` is 0 if it names none.
    """

    pem: str = ""
    problem: str = ""
    retry_after: float = 0.0


def place_order(order: Order, seconds: float = SECONDS) -> OrderAnswer:
    """The answer to ``order``; blocks for at most ``seconds``, and longer with a hook. What goes wrong is a problem in
    it.
    """
    seconds += 2 * dns_hook.SECONDS if order.hook else 0.0
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-m", _PROGRAM],
            input=msgspec.json.encode(order),
            capture_output=True,
            timeout=seconds,
            check=False,
        )
        return msgspec.json.decode(done.stdout[:LARGEST_ANSWER], type=OrderAnswer)
    except subprocess.TimeoutExpired:
        return OrderAnswer(problem=f"the authority did not finish within {seconds:g} s")
    except (OSError, ValueError):
        return OrderAnswer(problem="the process of the order ended without an answer")


def load_account_key(path: Path) -> str:
    """The private key of the account in the file ``path``, as PEM; created if it is missing. Raises EngineError."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if not path.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_atomic(path, content, 0o600)
        return content.decode()
    try:
        with open(open_regular(path, 0), "rb") as file:
            content = file.read(_LARGEST_KEY)
        compute_thumbprint(content.decode())
    except (OSError, ValueError, AttributeError):
        message = f"{path} is not the key of an ACME account: restore it, or remove it for a new account"
        raise EngineError(message, reason=Reason.STATE_WRITE_FAILED) from None
    return content.decode()


def compute_thumbprint(account_key: str) -> str:
    """The thumbprint of the account (RFC 7638), with which a challenge is answered. Raises ValueError."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(account_key.encode(), None)
    if not isinstance(key, EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise ValueError("no key of the curve P-256")
    numbers = key.public_key().public_numbers()
    x, y = (_encode_base64(number.to_bytes(32, "big")) for number in (numbers.x, numbers.y))
    return _encode_base64(sha256(f'{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}'.encode()).digest())


def _encode_base64(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()
