"""Inserts values from this host into manifests of secrets, in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from reconciler.documents.locator import Locator
from reconciler.manifests.decoder import Decoded
from reconciler.manifests.rule_check import check_rules
from reconciler.manifests.secret_values import encode_secret_data, mask_values
from reconciler.model.finding import Fault, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.secret import host_places
from reconciler.model.resource import Manifest
from reconciler.secrets.host_files import HostSecretDirectory, HostSecretError

_MARKS = (b'{"file":', b'{"credential":')
_encode = msgspec.json.Encoder(order="deterministic").encode


def resolve_host_secrets(
    decoded: Decoded, host: HostSecretDirectory, key: bytes, places: Callable[[], Locator]
) -> Decoded:
    """``decoded`` with the values that its secrets take from ``host``; shown values are masked with ``key``.

    An unavailable or invalid value becomes a fault; ``places`` finds positions in its file.
    """
    if not any(_reads_host(manifest) for manifest in decoded.manifests):
        return decoded
    faults: list[Fault] = []
    locator: list[Locator] = []
    manifests = []
    for manifest in decoded.manifests:
        filled, flaws = _fill_manifest(manifest, host, key) if _reads_host(manifest) else (manifest, [])
        manifests.append(filled)
        for at, fault in flaws:
            locator = locator or [places()]
            line, column = locator[0].of(manifest.position).value(at)
            faults.append(msgspec.structs.replace(fault, line=line, column=column, key=f"secret/{manifest.name}"))
    in_order = sorted((*decoded.faults, *faults), key=lambda fault: (fault.line, fault.column))
    return msgspec.structs.replace(decoded, manifests=tuple(manifests), faults=tuple(in_order))


def _reads_host(manifest: Manifest) -> bool:
    return manifest.kind is Kind.SECRET and any(mark in manifest.secret_data for mark in _MARKS)


def _fill_manifest(
    manifest: Manifest, host: HostSecretDirectory, key: bytes
) -> tuple[Manifest, list[tuple[Pointer, Fault]]]:
    body = msgspec.json.decode(manifest.body)
    content: dict[str, Any] = {"data": msgspec.json.decode(manifest.secret_data)}
    faults: list[tuple[Pointer, Fault]] = []
    places = host_places(body["type"], content["data"])
    for at, host_place in places.items():
        try:
            text: str | None = host.text(host_place)
        except HostSecretError as fault:
            faults.append((at, Fault(fault.rule, str(fault), suggestion=fault.suggestion)))
            text = None
        if text is None:
            continue
        if len(at) == 1:
            content["data"] = text
        else:
            content["data"][at[1]] = text
    if not places:
        return manifest, []
    for rule, flaw in check_rules(Kind.SECRET, {**body, **content}).flaws:
        if flaw.at in places:
            faults.append((flaw.at, Fault(rule.id, flaw.message, suggestion=flaw.suggestion, severity=rule.severity)))
    body["data"] = mask_values(content["data"], key)
    filled = msgspec.structs.replace(
        manifest, body=_encode(body), secret_data=encode_secret_data(content["data"]), transient=True
    )
    return filled, faults
