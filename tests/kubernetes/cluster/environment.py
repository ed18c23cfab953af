"""What a container gets from other objects: a kubelet starts none whose Secrets and ConfigMaps are missing."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import NamedTuple

import httpx2

from tests.kubernetes.cluster.client import Client, Object

ROOT_AUTHORITY = "kube-root-ca.crt"
"""A ConfigMap of each namespace that every pod mounts; it is not asked for, which would double the requests."""
PLURALS = {"secret": "secrets", "configmap": "configmaps"}
_REFERENCE = re.compile(r"\$(\$|\(([-._a-zA-Z0-9]+)\))")


class Missing(Exception):
    """An object or a key that a pod refers to is not there."""


class Unmounted(Missing):
    """A volume cannot be filled."""


class Source(NamedTuple):
    """A Secret or ConfigMap that a pod refers to."""

    kind: str
    name: str
    optional: bool


class Contents:
    """Reads Secrets and ConfigMaps of one namespace; each is asked for once."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._known: dict[tuple[str, str], dict[str, str]] = {}

    async def read(self, source: Source) -> dict[str, str]:
        """Its keys and values; nothing for one that is optional and missing. Raises Missing."""
        key = (source.kind, source.name)
        if key not in self._known:
            try:
                path = f"/api/v1/namespaces/{self._namespace}/{PLURALS[source.kind]}/{source.name}"
                item = await self._client.request("GET", path)
            except httpx2.HTTPStatusError as refusal:
                if source.optional:
                    return {}
                raise Missing(f'{source.kind} "{source.name}" not found') from refusal
            self._known[key] = _decode_data(source.kind, item)
        return self._known[key]


def _decode_data(kind: str, item: Object) -> dict[str, str]:
    data: dict[str, str] = item.get("data") or {}
    if kind == "secret":
        return {key: base64.b64decode(value).decode("utf-8", "replace") for key, value in data.items()}
    return {**data, **dict.fromkeys(item.get("binaryData") or {}, "")}


async def check_volumes(pod: Object, contents: Contents) -> None:
    """Raise Unmounted where a volume of ``pod`` cannot be filled."""
    for volume in pod["spec"].get("volumes") or ():
        for source, keys in _list_sources(volume):
            start = f'MountVolume.SetUp failed for volume "{volume["name"]}" : '
            try:
                content = await contents.read(source)
            except Missing as missing:
                raise Unmounted(f"{start}{missing}") from missing
            lost = [key for key in keys if key not in content]
            if lost and not source.optional:
                raise Unmounted(f"{start}references non-existent {source.kind} key: {lost[0]}")


def _list_sources(volume: Object) -> Iterator[tuple[Source, list[str]]]:
    """Each source of a volume, with the keys that it names."""
    projected = (volume.get("projected") or {}).get("sources") or ()
    for part in (volume, *projected):
        for field, kind in (("secret", "secret"), ("configMap", "configmap")):
            reference = part.get(field) or {}
            name = reference.get("secretName") or reference.get("name")
            if name and name != ROOT_AUTHORITY:
                keys = [entry["key"] for entry in reference.get("items") or ()]
                yield Source(kind, name, bool(reference.get("optional"))), keys


async def resolve_environment(pod: Object, container: Object, contents: Contents, address: str) -> dict[str, str]:
    """The variables of a container. Raises Missing."""
    variables: dict[str, str] = {"HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"]}
    for entry in container.get("envFrom") or ():
        for field, kind in (("secretRef", "secret"), ("configMapRef", "configmap")):
            if reference := entry.get(field):
                content = await contents.read(Source(kind, reference["name"], bool(reference.get("optional"))))
                variables |= {entry.get("prefix", "") + key: value for key, value in content.items()}
    for entry in container.get("env") or ():
        if "valueFrom" not in entry:
            variables[entry["name"]] = expand_references(entry.get("value", ""), variables)
        elif (value := await _resolve_value(pod, entry["valueFrom"], contents, address)) is not None:
            variables[entry["name"]] = value
    return variables


async def _resolve_value(pod: Object, source: Object, contents: Contents, address: str) -> str | None:
    for field, kind in (("secretKeyRef", "secret"), ("configMapKeyRef", "configmap")):
        if reference := source.get(field):
            optional = bool(reference.get("optional"))
            content = await contents.read(Source(kind, reference["name"], optional))
            if reference["key"] not in content and not optional:
                raise Missing(f"couldn't find key {reference['key']} in {kind} {reference['name']}")
            return content.get(reference["key"])
    if reference := source.get("fieldRef"):
        return read_field(pod, reference["fieldPath"], address)
    return "0"  # of resources: a node that runs nothing has no other answer


def read_field(pod: Object, path: str, address: str) -> str:
    """A field of a pod, as a fieldRef names it: ``metadata.labels['app']``, ``status.podIP``."""
    if path in ("status.podIP", "status.podIPs"):
        return address
    if path in ("status.hostIP", "status.hostIPs"):
        return "127.0.0.1"
    if found := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
        return str((pod["metadata"].get(found[1]) or {}).get(found[2], ""))
    part, _, field = path.partition(".")
    return str(pod[part].get(field, ""))


def expand_references(text: str, variables: dict[str, str]) -> str:
    """``$(NAME)`` replaced by the variable; an unknown one stays, and ``$$`` is a dollar."""

    def replace(found: re.Match[str]) -> str:
        return "$" if found[1] == "$" else variables.get(found[2], found[0])

    return _REFERENCE.sub(replace, text)
