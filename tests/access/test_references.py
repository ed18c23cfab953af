"""Every field of every kind that can hold a link, for callers with the permission on its target and without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import pytest

from reconciler.access.manifest_links import EMPTY, read_links
from reconciler.access.references import ReferenceCheck, RefusedReference, permission_to_refer
from reconciler.access.rules import AccessRules, Caller, Grant
from reconciler.documents.schema.loader import load_schema
from reconciler.manifests.links import UNCHECKED_KINDS
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.key import GVC_SCOPED, Key, Kind
from reconciler.model.kinds.table import TABLE, expand_permissions

ORG = "acme"
CONTEXT = ManifestContext(ORG)
CALLER = Caller("user/ann@example.com")
IDENTITY = "identity/shop/web"
URI = "platform://{}/target"


class LinkField(NamedTuple):
    """A place in the schema of ``kind``, ``[]`` for an item and ``*`` for a member, that can refer to ``target``."""

    kind: Kind
    place: tuple[str, ...]
    target: Kind
    is_uri: bool


def fields() -> Iterator[LinkField]:
    for kind in Kind:
        for pointer, schema in places(load_schema(str(kind)), ()):
            names = schema.get("x-link") or ()
            targets = [Kind(name) for name in names if name != "*"] if names != ["*"] else [*Kind]
            yield from (LinkField(kind, pointer, each, False) for each in targets if each not in UNCHECKED_KINDS)
            if schema.get("x-uri"):
                yield LinkField(kind, pointer, Kind.SECRET, True)
            if schema.get("x-uri") == "mount":
                yield LinkField(kind, pointer, Kind.VOLUMESET, True)


def places(schema: Any, at: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Every place of a schema that is for a link or a URI."""
    if not isinstance(schema, dict):
        return
    if schema.get("x-link") or schema.get("x-uri"):
        yield at, schema
    for name, child in schema.get("properties", {}).items():
        yield from places(child, (*at, name))
    yield from places(schema.get("items"), (*at, "[]"))
    yield from places(schema.get("additionalProperties"), (*at, "*"))
    for word in ("allOf", "anyOf", "oneOf"):
        for part in schema.get(word, ()):
            yield from places(part, at)


FIELDS = sorted(set(fields()))


def key_of(kind: Kind, name: str) -> Key:
    return Key(kind, "shop" if kind in GVC_SCOPED else "", name)


def link_to(field: LinkField) -> str:
    if field.is_uri:
        return URI.format(field.target)
    place = "gvc/shop/" if field.target in GVC_SCOPED else ""
    return f"//{place}{field.target}/target"


def document(field: LinkField, identity: str = "") -> dict[str, Any]:
    """A manifest of the kind with the link at its place, and little else; mostly more is missing in it."""
    value: Any = link_to(field)
    for step in reversed(field.place):
        value = [value] if step == "[]" else {("any" if step == "*" else step): value}
    body = {"kind": str(field.kind), "name": "subject", **value}
    if identity:
        body["spec"] = {**body["spec"], "identityLink": identity}
    return body | ({"gvc": "shop"} if field.kind in GVC_SCOPED else {})


def rules(*granted: tuple[str, Key, str]) -> AccessRules:
    """Rules that grant a principal a permission on a resource, and nothing else."""
    policy = Key(Kind.POLICY, "", "p")
    return AccessRules(
        [
            Grant(policy, key.kind, (who,), (may,), expand_permissions(key.kind, (may,)), keys=frozenset({str(key)}))
            for who, key, may in granted
        ],
        {},
        {},
        ORG,
    )


def refused(field: LinkField, access: AccessRules, was: Any = None, identity: str = "") -> RefusedReference | None:
    subject = key_of(field.kind, "subject")
    before = EMPTY if was is None else read_links(subject, was, CONTEXT)
    after = read_links(subject, document(field, identity), CONTEXT)
    return ReferenceCheck(access, CALLER, lambda _: {}).find_refused(subject, before, after)


def test_the_schemas_have_link_fields_of_all_the_kinds_that_can_be_used() -> None:
    usable = {kind for kind in Kind if "use" in TABLE[kind].permissions}
    assert {field.target for field in FIELDS} >= usable
    assert len(FIELDS) > 60


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: f"{field.kind}:{'.'.join(field.place)}>{field.target}")
def test_a_new_link_needs_the_permission_on_its_target(field: LinkField) -> None:
    target = key_of(field.target, "target")
    needed = permission_to_refer(field.target)
    for other in sorted(TABLE[field.target].permissions.keys() - {needed}):
        access = rules((CALLER.principal, target, other))
        is_enough = needed in expand_permissions(field.target, (other,))
        assert (refused(field, access) is None) is is_enough, other
    assert refused(field, rules((CALLER.principal, target, needed))) is None
    found = refused(field, rules((CALLER.principal, key_of(field.target, "another"), "manage")))
    assert found is not None
    assert (found.permission, found.target) == (needed, str(target))


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: f"{field.kind}:{'.'.join(field.place)}>{field.target}")
def test_a_link_that_was_there_may_stay_and_none_to_itself_is_asked_for(field: LinkField) -> None:
    assert refused(field, rules(), was=document(field)) is None
    subject = key_of(field.target, "target")
    own = ReferenceCheck(rules(), CALLER, lambda _: {})
    if field.kind is field.target:
        links = read_links(subject, document(field) | {"name": "target"}, CONTEXT)
        assert own.find_refused(subject, EMPTY, links) is None
    created = read_links(key_of(field.kind, "subject"), document(field), CONTEXT)
    assert own.find_refused(key_of(field.kind, "subject"), EMPTY, created, {subject}) is None


SECRET_URIS = [each for each in FIELDS if each.is_uri and each.target is Kind.SECRET and each.kind is Kind.WORKLOAD]


@pytest.mark.parametrize("field", SECRET_URIS, ids=lambda field: ".".join(field.place))
def test_the_identity_of_a_workload_reads_what_a_policy_lets_it_reveal(field: LinkField) -> None:
    target = key_of(Kind.SECRET, "target")
    use = (CALLER.principal, Key.parse(IDENTITY), "use")
    found = refused(field, rules(use), identity="//identity/web")
    assert found is not None
    assert (found.permission, found.target) == ("use", "secret/target")
    assert refused(field, rules(use, (IDENTITY, target, "reveal")), identity="//identity/web") is None
    assert refused(field, rules(use, (IDENTITY, target, "view")), identity="//identity/web") is not None
    # Without an identity, what another one may reveal does not matter.
    assert refused(field, rules((IDENTITY, target, "reveal"))) is not None


def test_a_secret_that_was_read_is_not_linked_without_the_permission() -> None:
    gvc = Key(Kind.GVC, "", "shop")
    was = {"kind": "gvc", "name": "shop", "spec": {"env": [{"name": "A", "value": "platform://secret/target"}]}}
    now = {"kind": "gvc", "name": "shop", "spec": {"pullSecretLinks": ["//secret/target"]}}
    check = ReferenceCheck(rules(), CALLER, lambda _: {})
    before, after = (read_links(gvc, each, CONTEXT) for each in (was, now))
    assert check.find_refused(gvc, before, before) is None
    assert check.find_refused(gvc, before, after) is not None


def test_a_query_for_locations_needs_use_on_all_of_them() -> None:
    gvc = Key(Kind.GVC, "", "shop")
    query = {"kind": "location", "spec": {"terms": [{"tag": "eu", "op": "exists"}]}}
    wanted = {"kind": "gvc", "name": "shop", "spec": {"staticPlacement": {"locationQuery": query}}}
    links = read_links(gvc, wanted, CONTEXT)
    everything = Grant(
        Key(Kind.POLICY, "", "p"),
        Kind.LOCATION,
        (CALLER.principal,),
        ("use",),
        expand_permissions(Kind.LOCATION, ("use",)),
        everything=True,
    )
    same = msgspec.structs.replace(
        everything, everything=False, query=links.body["spec"]["staticPlacement"]["locationQuery"]
    )
    for grants, is_refused in (((), True), ((everything,), False), ((same,), False)):
        check = ReferenceCheck(AccessRules(grants, {}, {}, ORG), CALLER, lambda _: {})
        assert (check.find_refused(gvc, EMPTY, links) is not None) is is_refused
        assert check.find_refused(gvc, links, links) is None


def test_a_target_in_another_org_is_for_the_settings_alone() -> None:
    workload = Key(Kind.WORKLOAD, "shop", "web")
    internal = {"inboundAllowWorkload": ["/org/other/gvc/shop/workload/web"]}
    wanted = {"kind": "workload", "name": "web", "gvc": "shop", "spec": {"firewallConfig": {"internal": internal}}}
    links = read_links(workload, wanted, CONTEXT)
    assert ReferenceCheck(rules(), CALLER, lambda _: {}).find_refused(workload, EMPTY, links) is None
    assert [each.target for each in links.references] == ["/org/other/gvc/shop/workload/web"]


def test_a_dependency_needs_a_view_of_what_it_waits_for() -> None:
    workload, identity = Key(Kind.WORKLOAD, "shop", "web"), Key(Kind.WORKLOAD, "shop", "api")
    wanted = {"kind": "workload", "name": "web", "gvc": "shop", "tags": {"reconciler/depends-on": "workload/shop/api"}}
    links = read_links(workload, wanted, CONTEXT)
    for access, is_refused in ((rules(), True), (rules((CALLER.principal, identity, "view")), False)):
        found = ReferenceCheck(access, CALLER, lambda _: {}).find_refused(workload, EMPTY, links)
        assert (found is not None) is is_refused


def test_links_of_another_spelling_are_links() -> None:
    workload = Key(Kind.WORKLOAD, "shop", "web")
    env = [{"name": "A", "value": "cpln://secret/target"}]
    wanted = {"kind": "workload", "name": "web", "spec": {"containers": [{"name": "main", "env": env}]}}
    links = read_links(workload, wanted, ManifestContext(ORG, "cpln"))
    found = ReferenceCheck(rules(), CALLER, lambda _: {}).find_refused(workload, EMPTY, links)
    assert found == RefusedReference("use", "secret/target", "/spec/containers/0/env/0/value")
