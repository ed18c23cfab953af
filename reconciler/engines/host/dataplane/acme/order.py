"""A short-lived process that orders one certificate: an Order on stdin, an Answer on stdout."""

from __future__ import annotations

import resource
import sys
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import requests
from acme import challenges, client, errors, messages
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from josepy.jwa import ES256
from josepy.jwk import JWKEC

from reconciler.engines.host.dataplane.acme.dns_hook import present_record
from reconciler.engines.host.dataplane.acme.orders import Order, OrderAnswer
from reconciler.errors import EngineError
from reconciler.foreign_words import strip_variation
from reconciler.printable import truncate_text

MEMORY = 1 << 30
"""Bytes of address space: an authority may send any amount."""

_REQUEST_SECONDS = 20


def main() -> None:
    """Answer the order on stdin."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    sys.stdout.buffer.write(
        msgspec.json.encode(perform_order(msgspec.json.decode(sys.stdin.buffer.read(), type=Order)))
    )


def perform_order(order: Order) -> OrderAnswer:
    """Order the certificate. The challenge is answered by the data plane, which knows the account's thumbprint."""
    waits: list[str] = []
    key = ec.generate_private_key(ec.SECP256R1())
    try:
        chain = _order_certificate(order, _open_account(order, waits), _build_signing_request(order.host, key))
    except (errors.Error, messages.Error, requests.RequestException, ValueError, EngineError) as error:
        return OrderAnswer(
            problem=truncate_text(strip_variation(_describe_error(error))),
            retry_after=_parse_retry_after(waits[-1]) if waits else 0.0,
        )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return OrderAnswer(chain + private.decode())


def _open_account(order: Order, waits: list[str]) -> client.ClientV2:
    """The authority, seen by the account of the order, which is created if it is new."""
    network = _make_network(order, waits)
    server = client.ClientV2(client.ClientV2.get_directory(order.directory, network), network)
    try:
        server.new_account(messages.NewRegistration.from_data(email=order.email or None, terms_of_service_agreed=True))
    except errors.ConflictError as conflict:
        account = messages.RegistrationResource(uri=conflict.location, body=messages.Registration())
        return client.ClientV2(server.directory, _make_network(order, waits, account))
    return server


def _make_network(
    order: Order, waits: list[str], account: messages.RegistrationResource | None = None
) -> client.ClientNetwork:
    private = load_pem_private_key(order.account_key.encode(), None)
    network = client.ClientNetwork(
        JWKEC(key=private),
        account,
        alg=ES256,
        user_agent="gitops-reconciler",
        timeout=_REQUEST_SECONDS,
    )
    network.verify_ssl = order.ca_file or True  # type: ignore[assignment]
    network.session.hooks["response"].append(lambda response, *_, **__: _note_wait(response, waits))
    return network


def _order_certificate(order: Order, server: client.ClientV2, request: bytes) -> str:
    order_resource = server.new_order(request)
    with ExitStack() as records:
        for authorization in order_resource.authorizations:
            if authorization.body.status == messages.STATUS_PENDING:
                body = _select_challenge(order, authorization.body)
                if order.hook:
                    name = body.chall.validation_domain_name(authorization.body.identifier.value)
                    value = body.chall.validation(server.net.key)
                    records.enter_context(present_record(order.hook, Path(order.presented), name, value))
                server.answer_challenge(body, body.response(server.net.key))
        # The library compares it with times without a zone.
        deadline = datetime.now() + timedelta(seconds=order.seconds)  # noqa: DTZ005
        done = server.poll_and_finalize(order_resource, deadline)
    return str(done.fullchain_pem)


def _select_challenge(order: Order, authorization: messages.Authorization) -> messages.ChallengeBody:
    """The challenge that is answered."""
    kind = challenges.DNS01 if order.hook else challenges.HTTP01
    body = next((one for one in authorization.challenges if isinstance(one.chall, kind)), None)
    if body is None:
        raise ValueError(f"the authority offers no challenge {kind.typ} for {order.host}")
    return body


def _build_signing_request(host: str, key: ec.EllipticCurvePrivateKey) -> bytes:
    names = x509.SubjectAlternativeName([x509.DNSName(host)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).add_extension(names, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _describe_error(error: Exception) -> str:
    match error:
        case errors.ValidationError():
            bodies = (
                challenge for authorization in error.failed_authzrs for challenge in authorization.body.challenges
            )
            details = "; ".join(str(body.error.detail) for body in bodies if body.error is not None)
            return f"the authority refused the challenge: {details}"
        case EngineError():
            return str(error)
        case errors.TimeoutError():
            return "the authority did not check the challenge in time"
        case errors.IssuanceError():
            return f"the authority issued no certificate: {error.error.detail}"
        case messages.Error():
            return f"the authority refused the order: {error.detail or error.typ}"
        case requests.exceptions.SSLError():
            return "the certificate of the authority is not trusted: set caFile to that of its issuer"
        case requests.ConnectionError() | requests.Timeout():
            return "the authority cannot be reached, or does not answer in time"
        case errors.ClientError() if error.args and isinstance(error.args[0], requests.Response):
            return f"the authority answered with status {error.args[0].status_code}"
    return f"the authority gave an unusable answer: {error}"


def _note_wait(response: requests.Response, waits: list[str]) -> None:
    if not response.ok and (value := response.headers.get("Retry-After")):
        waits.append(value)


def _parse_retry_after(text: str) -> float:
    """The seconds of a header Retry-After, which has a number or a date; 0 if it has neither."""
    from email.utils import parsedate_to_datetime

    if text.isdecimal():
        return float(text)
    try:
        when: Any = parsedate_to_datetime(text)
        return max(float((when - datetime.now(when.tzinfo)).total_seconds()), 0.0)
    except ValueError:
        return 0.0


if __name__ == "__main__":
    main()
