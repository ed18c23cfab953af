"""The kinds of resources as the command shows them: their scope, columns, and what they lack."""

from __future__ import annotations

from typing import NamedTuple

_NOTHING: dict[str, str] = {}
_BY_PATCH = "change it by `platform {kind} patch REF --file FILE` or `platform {kind} edit REF`"
_BY_FILE = "save it by `platform {kind} get REF -o yaml-slim`, change the name, and `platform apply --file FILE`"


class KindView(NamedTuple):
    """A kind. ``columns`` are dotted paths by heading, between the name and the description of a listing.

    ``lacks`` maps a common subcommand that does not exist for it to what to do instead.
    """

    title: str
    aliases: tuple[str, ...] = ()
    in_gvc: bool = False
    columns: dict[str, str] = _NOTHING
    lacks: dict[str, str] = _NOTHING


_NO_DATA = "its data would be shown; create the other one from the same file by `platform secret create-TYPE`"
_READ_ONLY = dict.fromkeys(
    ("edit", "patch", "tag", "clone", "update", "delete"),
    "it comes from the server; {kind} has: get, query, permissions, access-report",
)
_ORG = dict.fromkeys(("clone", "delete", "query"), "a daemon has one org: `platform org get`")
_NO_CLONE = {"clone": _BY_FILE}
_HEALTH = {"HEALTH": "status.health"}

KINDS = {
    "agent": KindView("Agents in networks of your own", lacks=_NO_CLONE),
    "auditctx": KindView("Audit contexts: records of what programs do", columns={"ORIGIN": "origin"}),
    "cloudaccount": KindView(
        "Accounts at cloud providers", columns={"PROVIDER": "provider"}, lacks={"clone": _BY_FILE, "update": _BY_PATCH}
    ),
    "domain": KindView(
        "Domains that lead to workloads", columns=_HEALTH, lacks={"clone": _BY_FILE, "update": _BY_PATCH}
    ),
    "group": KindView("Groups of users and service accounts", columns={"ORIGIN": "origin", "MEMBERS": "memberLinks"}),
    "gvc": KindView(
        "Global virtual clouds: workloads and their locations",
        columns={"ALIAS": "alias", "LOCATIONS": "spec.staticPlacement.locationLinks"},
    ),
    "identity": KindView("Identities: what workloads may do", ("id",), in_gvc=True),
    "image": KindView("Images in the registry of the org", lacks=_READ_ONLY),
    "ipset": KindView("IP sets: addresses that stay", columns={"LINK": "spec.link"}),
    "location": KindView(
        "Locations where workloads run", ("loc",), columns={"PROVIDER": "provider", "REGION": "region"}
    ),
    "org": KindView("The org", lacks=_ORG),
    "policy": KindView("Policies: who may do what", columns={"TARGET": "targetKind", "ORIGIN": "origin"}),
    "quota": KindView("Quotas: limits of the org", lacks=_READ_ONLY),
    "secret": KindView(
        "Secrets: passwords, keys and certificates", columns={"TYPE": "type"}, lacks={"clone": _NO_DATA}
    ),
    "serviceaccount": KindView("Service accounts: programs that log in with keys", ("sa",)),
    "user": KindView(
        "Users: people who log in",
        columns={"EMAIL": "email"},
        lacks={"clone": "invite a person: `platform user invite`"},
    ),
    "volumeset": KindView(
        "Volume sets: storage of workloads",
        in_gvc=True,
        columns={
            "CLASS": "spec.performanceClass",
            "CAPACITY": "spec.initialCapacity",
            "USED BY": "status.usedByWorkload",
        },
    ),
    "workload": KindView(
        "Workloads: programs in containers",
        ("w",),
        in_gvc=True,
        columns={
            "TYPE": "spec.type",
            "HEALTH": "status.health",
            "REPLICAS": "status.currentReplicaCount",
            "ENDPOINT": "status.canonicalEndpoint",
        },
    ),
}
"""Every kind that has commands, in the order of the reference."""
