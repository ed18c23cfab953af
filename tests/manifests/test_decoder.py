"""One file at a time: its normal form, what it refers to, and what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from reconciler.decode.cache import holds_secrets
from reconciler.documents.schema.loader import KIND_NAMES
from reconciler.manifests.decoder import NO_MANIFEST, Decoded, ManifestFile, decode_manifests, decode_many
from reconciler.manifests.gvc_resolution import resource_of
from reconciler.manifests.normalize import ManifestContext
from reconciler.manifests.rules import load_rules
from reconciler.model.finding import Fault, Severity
from reconciler.model.key import GVC_SCOPED, Kind
from reconciler.model.resource import GVC_PLACEHOLDER, Reference, Resource
from tests.documents.tree import full
from tests.project.tree import ROOT
from tests.support.cases import cases
from tests.support.pace import in_time

KEY = b"k" * 32
KINDS = tuple(name for name in KIND_NAMES if name != "secret")


def resources(decoded: Decoded, gvc: str = "shop") -> list[Resource]:
    """Every manifest as a resource; those that leave it open are in ``gvc``."""
    return [
        resource_of(found, gvc if found.gvc == GVC_PLACEHOLDER else found.gvc, "a.yaml", "blob")
        for found in decoded.manifests
    ]


def at(body: Any, path: str) -> Any:
    """The value at ``path``, such as ``spec.containers.0.image``."""
    for step in path.split("."):
        body = body[int(step)] if step.isdigit() else body[step]
    return body


def written(fault: Fault) -> str:
    """A fault as a case writes it."""
    words = [fault.rule, fault.message, fault.suggestion]
    return f"{fault.line}:{fault.column} " + " | ".join(word for word in words if word)


def of_form(decoded: Decoded) -> list[Fault]:
    """The faults that no rule of the platform's content is to blame for: those have cases of their own."""
    return [fault for fault in decoded.faults if fault.rule not in {*load_rules(), "duplicate-entry"}]


def listed(reference: Reference) -> str:
    """A reference as a case writes it."""
    return f"{reference.target} {reference.bond} {reference.pointer}"


def test_many_files_are_decoded_as_each_of_them() -> None:
    files = [msgspec.json.encode(document) for kind in KINDS[:3] for document in full(kind)]
    files += [b"kind: group\nname: [\n", b"", b"kind: group\nnaem: a\n", b"kind: group\nname: a\n"]
    context = ManifestContext("acme", secret_key=KEY)
    found = decode_many([ManifestFile(raw) for raw in files], context)
    assert found == [decode_manifests(raw, context) for raw in files]


@pytest.mark.parametrize("case", cases("manifests/forms.yaml"))
def test_a_document_is_decoded_as_its_case_expects(case: dict[str, Any]) -> None:
    decoded = decode_manifests(case["input"].encode(), ManifestContext("acme", case.get("scheme", "platform"), KEY))
    expected = case.get("faults", [])
    faults = of_form(decoded)
    assert [written(fault)[: len(words)] for fault, words in zip(faults, expected, strict=False)] == expected
    assert len(faults) == len(expected), [written(fault) for fault in faults]
    if "form" not in case and "references" not in case:
        return
    [resource] = resources(decoded)
    body = msgspec.json.decode(resource.body)
    assert {path: at(body, path) for path in case.get("form", {})} == case.get("form", {})
    if "references" in case:
        assert [listed(reference) for reference in resource.references] == case["references"]


def errors(decoded: Decoded) -> set[str]:
    """Rules that are broken so that a revision would be refused."""
    return {fault.rule for fault in decoded.faults if fault.severity is Severity.ERROR}


def manifests_of(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """``value``, and ``value`` again and again with one of its optional fields left out."""
    yield value
    for holder, name in optional(value):
        member = holder.pop(name)
        yield value
        holder[name] = member


def optional(value: Any) -> list[tuple[dict[str, Any], str]]:
    """Every mapping in ``value`` with each of its fields."""
    fields: list[tuple[dict[str, Any], str]] = []
    if isinstance(value, dict):
        fields += [(value, name) for name in value]
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        fields += optional(child)
    return fields


@pytest.mark.parametrize("kind", KINDS)
def test_the_normal_form_of_a_normal_form_is_itself(kind: str) -> None:
    dialect = ManifestContext("acme")
    several = 0
    for document in full(kind):
        for value in manifests_of(document):
            decoded = decode_manifests(msgspec.json.encode(value), dialect)
            if not decoded.manifests:
                continue
            [once] = resources(decoded)
            again = decode_manifests(once.body, dialect)
            assert errors(again) <= errors(decoded)
            [twice] = resources(again, "another")
            assert twice.body == once.body
            assert {ref.target for ref in twice.references} == {ref.target for ref in once.references}
            several += 1
    assert several > 3 or not optional(full(kind)[0].get("spec", {}))


def test_saying_the_gvc_that_would_be_found_changes_nothing() -> None:
    example = (ROOT / "examples/repo/shop/api.yaml").read_bytes()
    for text in (example, *(msgspec.json.encode(document) for document in full("workload"))):
        [resource] = resources(decode_manifests(text, ManifestContext("acme")))
        explicit_text = text.replace(b"name:", b"gvc: shop\nname:", 1)
        if text is not example:
            explicit_text = msgspec.json.encode(msgspec.json.decode(text) | {"gvc": resource.key.gvc})
        [explicit] = resources(decode_manifests(explicit_text, ManifestContext("acme")))
        assert (explicit.key, explicit.body, explicit.digest) == (resource.key, resource.body, resource.digest)
        assert explicit.references == resource.references


def test_the_order_of_fields_and_spellings_does_not_change_the_digest() -> None:
    one = b"kind: gvc\nname: g\nspec: {staticPlacement: {locationLinks: [//location/a, //location/b]}, env: []}\n"
    other = b"""{"spec": {"staticPlacement": {"locationLinks": ["/org/acme/location/b", "//location/a"]}},
        "kind": "gvc", "description": "g", "name": "g", "tags": {}}"""
    digests = {resources(decode_manifests(raw, ManifestContext("acme")))[0].digest for raw in (one, other)}
    assert len(digests) == 1


def test_every_faulty_document_of_a_file_is_reported_and_the_others_are_decoded() -> None:
    raw = b"kind: identity\nname: a\n---\nkind: identity\nnam: b\n---\n---\nkind: identity\nname: c\n"
    decoded = decode_manifests(raw, ManifestContext("acme"))
    assert [(found.name, found.position, found.line) for found in decoded.manifests] == [("a", 0, 1), ("c", 2, 8)]
    assert [fault.line for fault in decoded.faults] == [4, 5]
    assert decoded.documents == 3


def test_a_fault_of_the_schema_names_the_resource_where_it_can() -> None:
    decoded = decode_manifests(b"kind: secret\nname: db\ntype: opaqe\ndata: {payload: x}\n", ManifestContext("acme"))
    assert {fault.key for fault in decoded.faults} == {"secret/db"}


@pytest.mark.parametrize("document", full("secret"), ids=lambda value: value["type"])
def test_no_value_of_a_secret_is_in_its_body(document: dict[str, Any]) -> None:
    values = sorted(texts(document["data"]), key=len)
    # What tests of encryption are about is not the matter here.
    plain = {name: value for name, value in document.items() if name != "sops"}
    decoded = decode_manifests(msgspec.json.encode(plain), ManifestContext("acme", secret_key=KEY))
    [manifest] = decoded.manifests
    body = msgspec.json.decode(manifest.body)
    assert all(text.startswith("***") for text in texts(body["data"]))
    assert not [text for text in values if text in manifest.body.decode() and len(text) > 5]
    assert msgspec.json.decode(manifest.secret_data) == document["data"]
    assert manifest.kind is Kind.SECRET
    assert Kind.SECRET not in GVC_SCOPED


def texts(value: Any) -> list[str]:
    """Every text and number in ``value``, as text."""
    if isinstance(value, dict):
        return [text for member in value.values() for text in texts(member)]
    if isinstance(value, list):
        return [text for member in value for text in texts(member)]
    return [str(value)]


def test_a_changed_secret_shows_in_its_digest_and_another_key_hides_it_anew() -> None:
    def digest(payload: str, key: bytes) -> str:
        raw = f"kind: secret\nname: s\ntype: opaque\ndata: {{payload: {payload}}}\n".encode()
        return resources(decode_manifests(raw, ManifestContext("acme", secret_key=key)))[0].digest

    assert digest("one", KEY) == digest("one", KEY)
    assert len({digest("one", KEY), digest("two", KEY), digest("one", b"other")}) == 3


@pytest.mark.parametrize(
    ("secret_type", "one", "other"),
    [
        ("opaque", "{payload: x}", "{encoding: plain, payload: x}"),
        ("userpass", "{username: u, password: p}", "{password: p, username: u, encoding: plain}"),
        ("ecr", "{accessKey: a, secretKey: s, repos: [b, a]}", "{accessKey: a, secretKey: s, repos: [a, b]}"),
    ],
)
def test_two_ways_to_write_a_secret_are_one_secret(secret_type: str, one: str, other: str) -> None:
    raw = (f"kind: secret\nname: s\ntype: {secret_type}\ndata: {content}\n" for content in (one, other))
    first, second = (
        decode_manifests(each.encode(), ManifestContext("acme", secret_key=KEY)).manifests[0] for each in raw
    )
    assert (first.body, first.secret_data) == (second.body, second.secret_data)


def test_a_fault_in_a_secret_does_not_quote_its_value() -> None:
    raw = b"kind: secret\nname: s\ntype: dictionary\ndata: {a: [hush-hush], b: {c: hush-hush}, 'e f': hush-hush}\n"
    decoded = decode_manifests(raw, ManifestContext("acme", secret_key=KEY))
    assert decoded.faults
    assert "hush" not in repr(decoded.faults)


def test_faults_of_a_file_are_reported_up_to_a_limit() -> None:
    one = b"kind: workload\nname: w\nspec: {type: standard, containers: [{name: a, image: x:1, ports: [{numbr: 1}]}]}\n"
    decoded, _ = in_time(lambda: decode_manifests(b"---\n".join([one] * 4000), ManifestContext("acme")), 1.5)
    *reported, last = decoded.faults
    assert [fault.line for fault in reported[::2]] == list(range(3, 4 * 251 + 1, 4))
    assert (last.rule, last.line) == ("too-many-faults", 4 * 250 + 3)


def test_a_tag_is_pointed_at_where_it_is_written_in_another_spelling() -> None:
    raw = b"kind: identity\nname: web\ngvc: shop\ntags:\n  cpln/protected: maybe\n"
    [fault] = decode_manifests(raw, ManifestContext("acme", "cpln", KEY)).faults
    assert (fault.rule, fault.line, fault.column) == ("tag-without-effect", 5, 19)


@pytest.mark.parametrize(
    ("raw", "keys"),
    [
        (b'{"kind": "identity", "name": "me", "gvc": "shop",}', ["identity/shop/me"]),
        (b'[{"kind": "gvc", "name": "a", "spec": {"kind": "group", "name": "b"}},\n {"kind": "user"', ["gvc/a"]),
        (b'[\n  {\n    "kind": "group",\n    "name": "a"\n  }\n  {"kind": "secret", "name": "b"}\n]', ["secret/b"]),
        (b'// all\n{"kind": "secret", "name": "b", "data": "x"}', ["secret/b"]),
        (b'{"kind": "secret", "name": "b", "name": "c"}', ["secret/b"]),
    ],
)
def test_json_with_faults_still_names_its_resources(raw: bytes, keys: list[str]) -> None:
    decoded = decode_manifests(raw, ManifestContext("acme", secret_key=KEY), is_json=True)
    assert [each.key for each in decoded.broken] == keys
    assert holds_secrets(decoded) is any(key.startswith("secret/") for key in keys)


def test_a_text_of_json_is_no_comment() -> None:
    value = {
        "kind": "gvc",
        "name": "a",
        "tags": {"platform/team": "x"},
        "description": "see # reconciler: ignore RULE why",
    }
    as_json, as_yaml = (
        decode_manifests(json.dumps(value).encode(), ManifestContext("acme"), is_json=form) for form in (1, 0)
    )
    assert {fault.rule for fault in as_yaml.faults} - {fault.rule for fault in as_json.faults} == {"ignore-comment"}


def test_other_files_in_json_are_nothing() -> None:
    assert decode_manifests(b'{"name": "web", "kind": "app"}', ManifestContext("acme"), is_json=True) == NO_MANIFEST
