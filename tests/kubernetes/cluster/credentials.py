"""What proves who is who at a cluster: certificates, tokens, and the kubeconfigs that hold them."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tests.support.certificates import IssuedCertificate, authority, issue, issue_for_user

AUTHORITY = "Authority of clusters"
ADMINS = "system:masters"
"""The group that may do everything."""
ISSUER = "https://kubernetes.default.svc"
"""Issues the tokens of service accounts, and is their audience."""


def write_files(folder: Path) -> IssuedCertificate:
    """Write what the components read, and return the key that signs tokens of service accounts."""
    signer = issue_for_user("service accounts", by=AUTHORITY)
    (folder / "ca.crt").write_bytes(authority(AUTHORITY).chain_pem)
    write_serving_pair(folder)
    pairs = {
        "kubelet-client": issue_for_user("kube-apiserver", ADMINS, by=AUTHORITY),
        "front-proxy": issue_for_user("front-proxy", by=AUTHORITY),
        "admin": issue_for_user("admin", ADMINS, by=AUTHORITY),
        "kubelet": issue("127.0.0.1", "localhost", by=AUTHORITY),
        "service-accounts": signer,
    }
    for name, issued in pairs.items():
        write_pair(folder, name, issued)
    return signer


def write_serving_pair(folder: Path, seconds: float = 86_400.0) -> None:
    """Write the certificate of the API server, which ends in ``seconds``; a server that runs takes it, too."""
    end = seconds / 86_400.0
    names = ("127.0.0.1", "localhost", "kubernetes.default.svc")
    write_pair(folder, "serving", issue(*names, end=end, by=AUTHORITY))


def write_node_pair(folder: Path, address: str) -> None:
    """Write the certificate that the nodes at ``address`` show to the API server."""
    write_pair(folder, "node", issue(address, by=AUTHORITY))


def write_pair(folder: Path, name: str, issued: IssuedCertificate) -> None:
    """Write ``name.crt`` and ``name.key``, each whole: a server may read them now."""
    for kind, content in (("crt", issued.chain_pem), ("key", issued.key_pem)):
        unfinished = folder / f"{name}.{kind}.new"
        unfinished.touch(0o600)
        unfinished.write_bytes(content)
        unfinished.rename(folder / f"{name}.{kind}")


def write_kubeconfig(path: Path, url: str, user: dict[str, str]) -> Path:
    """Write a kubeconfig of one context; ``user`` is its user entry."""
    cluster = {"server": url, "certificate-authority-data": encode_base64(authority(AUTHORITY).chain_pem)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    path.touch(0o600)
    path.write_text(json.dumps(content, indent=2))  # JSON is YAML
    return path


def user_by_certificate(user: str, *groups: str, seconds: float = 86_400.0) -> dict[str, str]:
    """The user entry of a client with a certificate that is valid for ``seconds``."""
    issued = issue_for_user(user, *groups, end=seconds / 86_400.0, by=AUTHORITY)
    return {
        "client-certificate-data": encode_base64(issued.chain_pem),
        "client-key-data": encode_base64(issued.key_pem),
    }


def encode_base64(content: bytes) -> str:
    """``content`` as kubeconfigs have it."""
    return base64.b64encode(content).decode()


def sign_token(signer: IssuedCertificate, account: dict[str, Any], seconds: float) -> str:
    """A token of the service account that the server returned as ``account``; the server itself signs for ≥ 600 s."""
    now = int(time.time())
    metadata = account["metadata"]
    claims = {
        "iss": ISSUER,
        "aud": [ISSUER],
        "sub": f"system:serviceaccount:{metadata['namespace']}:{metadata['name']}",
        "iat": now,
        "nbf": now - 1,
        "exp": now + int(seconds),
        "kubernetes.io": {
            "namespace": metadata["namespace"],
            "serviceaccount": {"name": metadata["name"], "uid": metadata["uid"]},
        },
    }
    parts = [_encode_for_token(json.dumps(part).encode()) for part in ({"alg": "ES256", "typ": "JWT"}, claims)]
    signature = signer.key.sign(".".join(parts).encode(), ECDSA(hashes.SHA256()))
    numbers = b"".join(number.to_bytes(32, "big") for number in decode_dss_signature(signature))
    return ".".join([*parts, _encode_for_token(numbers)])


def _encode_for_token(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
