"""Who may log in: people whom the org knows, by a manifest, an invitation, their domain or their groups."""

from __future__ import annotations

import re

import msgspec

from reconciler.access.people import Person
from reconciler.api.call import Call
from reconciler.api.oidc.login import LoginIdentity
from reconciler.api.problems import Problem
from reconciler.api.reading import org_of
from reconciler.model.key import Key, Kind
from reconciler.records.store import Records

NAME = re.compile("[a-zA-Z0-9][-._%+a-zA-Z0-9]*(@[a-zA-Z0-9]([-.a-zA-Z0-9]*[a-zA-Z0-9])?)?")
LONGEST_NAME = 254
"""Characters of the longest name of a user."""


def admit_person(call: Call, identity: LoginIdentity, issuer: str) -> Person:
    """The user that ``identity`` is. Raises Problem 403 if the org does not know the person."""
    records = call.reader.records
    config = org_of(records, call.org).spec.auth_config
    if config.saml_only:
        raise Problem(403, f"the org {call.org} lets people log in by SAML only, and this server has OpenID Connect")
    name = name_of(records, identity.email)
    if call.api.store.people.was_removed_since(name, identity.at):
        raise Problem(403, f"{name} was removed during this login; log in again")
    user = call.api.store.people.find(name)
    if user is None and not (
        records.applied.exists(Key(Kind.USER, "", name))
        or name.rpartition("@")[2].lower() in map(str.lower, config.domain_auto_members)
        or identity.groups
    ):
        raise Problem(403, f"{name} is no member of {call.org}; ask for an invitation")
    if user is not None and user.subject and (user.issuer, user.subject) != (issuer, identity.subject):
        # Addresses are given to other people, and some providers let people write any: the account must be the same.
        raise Problem(403, f"{name} is another account at {issuer} than before; a superuser can remove the user {name}")
    person = user or Person(name, call.api.clock.now())
    return person._replace(issuer=issuer, subject=identity.subject)


def name_of(records: Records, email: str) -> str:
    """The name of the user with the address ``email``: that of their manifest, or else the address.

    Raises Problem 403 if the address cannot be a name.
    """
    lower = email.lower()
    for record in records.applied.items(Kind.USER):
        body = msgspec.json.decode(record.body)
        if lower in (body["name"].lower(), str(body.get("email", "")).lower()):
            return record.key.name
    if len(lower) > LONGEST_NAME or not NAME.fullmatch(lower):
        raise Problem(403, f"{lower[:LONGEST_NAME]!r} cannot be the name of a user")
    return lower
