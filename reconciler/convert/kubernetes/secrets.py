"""Converts Secret and ConfigMap to secret; no message ever contains a value of either."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any, NamedTuple

from reconciler.convert.budget import Budget
from reconciler.convert.drafts import Body, Draft, make_draft
from reconciler.convert.kubernetes.bundle import WORKLOADS, Bundle, Item
from reconciler.convert.names import Names
from reconciler.convert.tracked_value import TrackedValue
from reconciler.model.key import Kind

_DOCKER = {"kubernetes.io/dockerconfigjson": ".dockerconfigjson", "kubernetes.io/dockercfg": ".dockercfg"}
_CERTIFICATE = {"tls.crt": "cert", "tls.key": "key", "ca.crt": "chain"}
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Characters that a manifest cannot hold, even escaped."""


class ConvertedSecret(NamedTuple):
    """The result for a Secret or ConfigMap: the secret's name, type and keys, and the name of its TLS secret."""

    name: str
    type: str
    keys: tuple[str, ...]
    certificate: str = ""


class Secrets:
    """The secrets for a bundle's Secrets and ConfigMaps."""

    def __init__(self, bundle: Bundle, names: Names, budget: Budget) -> None:
        self.drafts: list[Draft] = []
        self.budget = budget
        self._converted: dict[tuple[str, str, str], ConvertedSecret] = {}
        self._names = names
        self._served = {
            (item.namespace, name) for item in bundle.of("Ingress") for name in _list_tls_secrets(item.root.value)
        }
        self._read = {
            (item.namespace, name) for item in bundle.of(*WORKLOADS) for name in _list_read_secrets(item.root.value)
        }
        for item in bundle.of("Secret"):
            self._add(item, (item.name, f"{item.name}-{item.namespace}"))
        for item in bundle.of("ConfigMap"):
            self._add(item, (item.name, f"{item.name}-config", f"{item.name}-{item.namespace}-config"))

    def find(self, kind: str, namespace: str, name: str) -> ConvertedSecret | None:
        """The result for the ``kind`` (Secret or ConfigMap) of that name, None where it is not in the bundle."""
        return self._converted.get((kind, namespace, name))

    def _add(self, item: Item, wishes: tuple[str, ...]) -> None:
        name = self._names.take(Kind.SECRET, "", wishes)
        if name != item.name:
            item.root["metadata"]["name"].add_note("convert-name", f"{item} becomes the secret {name}")
        texts = dict(_list_texts(item))
        secret = ConvertedSecret(name, "dictionary", tuple(texts))
        body: Body = {"type": "dictionary", "data": texts}
        written = item.root["type"].text("Opaque") if item.kind == "Secret" else ""
        if written in _DOCKER:
            secret, body = (
                ConvertedSecret(name, "docker", ()),
                {"type": "docker", "data": _build_docker_config(item, written, texts)},
            )
        elif written == "kubernetes.io/basic-auth" and texts.keys() == {"username", "password"}:
            secret, body = secret._replace(type="userpass"), {"type": "userpass", "data": texts}
        elif (item.namespace, item.name) in self._served and {"tls.crt", "tls.key"} <= texts.keys():
            secret, body = self._certificate(item, secret, texts)
        self._converted[item.kind, item.namespace, item.name] = secret
        self.drafts.append(make_draft(Kind.SECRET, name, "", item.root, body))

    def _certificate(self, item: Item, secret: ConvertedSecret, texts: dict[str, str]) -> tuple[ConvertedSecret, Body]:
        """Domains need a secret of type tls; workloads that read the Secret's files need their names."""
        body: Body = {"type": "tls", "data": {_CERTIFICATE[key]: texts[key] for key in _CERTIFICATE if key in texts}}
        if (item.namespace, item.name) not in self._read and texts.keys() <= _CERTIFICATE.keys():
            return ConvertedSecret(secret.name, "tls", tuple(body["data"]), secret.name), body
        name = self._names.take(Kind.SECRET, "", (f"{secret.name}-tls",))
        item.root["metadata"]["name"].add_note(
            "convert-name", f"{item} becomes the secret {secret.name} for workloads and {name} for domains"
        )
        self.drafts.append(make_draft(Kind.SECRET, name, "", item.root, body))
        return secret._replace(certificate=name), {"type": secret.type, "data": texts}


def _list_texts(item: Item) -> Iterator[tuple[str, str]]:
    """Key and text of all data of ``item``; later ones override earlier ones."""
    encoded, plain = ("data", "stringData") if item.kind == "Secret" else ("binaryData", "data")
    for key, part in item.root[encoded].fields():
        yield key, _decode_value(key, part)
    for key, part in item.root[plain].fields():
        yield key, _encode_value(key, part, part.text().encode("utf-8", "surrogatepass"))


def _decode_value(key: str, part: TrackedValue) -> str:
    try:
        return _encode_value(key, part, b64decode("".join(part.text().split()), validate=True))
    except (binascii.Error, ValueError):
        part.add_note("convert-malformed", f"the value of `{key}` is not base64", on_key=True)
        return ""


def _encode_value(key: str, part: TrackedValue, value: bytes) -> str:
    """``value`` as text for a manifest, or as base64 where it is not text."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if not _CONTROL.search(text):
        return text
    part.add_note("convert-binary", f"`{key}` is not plain text and is written in base64", on_key=True)
    return b64encode(value).decode()


def _build_docker_config(item: Item, written: str, texts: dict[str, str]) -> str:
    key = _DOCKER[written]
    if key not in texts:
        item.root.add_note("convert-malformed", f"a Secret of type {written} has the key `{key}`")
    text = texts.get(key, "")
    return text if key == ".dockerconfigjson" else f'{{"auths": {text}}}'


def _list_tls_secrets(value: Any) -> Iterator[str]:
    """Names of the Secrets that an Ingress uses for TLS."""
    return (name for name in _find_field_texts(value, "tls", "secretName"))


def _list_read_secrets(value: Any) -> Iterator[str]:
    """Names of the Secrets that the containers of a workload read."""
    for holder in ("secretKeyRef", "secretRef", "secret"):
        for field in ("name", "secretName"):
            yield from _find_field_texts(value, holder, field)


def _find_field_texts(value: Any, holder: str, field: str) -> Iterator[str]:
    """Texts of ``field`` within ``holder``, at any depth."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, member in members:
        if name == holder:
            inner = member if isinstance(member, list) else [member]
            yield from (
                value[field] for value in inner if isinstance(value, dict) and isinstance(value.get(field), str)
            )
        yield from _find_field_texts(member, holder, field)
