"""Renders a split of requests by version: weights for new clients, and a cookie that returns others to their version.

A cookie of HAProxy's own names one server, also while that drains. Here the cookie names a version, and a map leads
from it to the replicas that it has now. The entries of the map: ``BACKEND|VERSION`` → the number of replicas,
``BACKEND|VERSION|NUMBER`` → a replica, ``BACKEND/REPLICA`` → its version.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from hashlib import blake2b

SPLITS = "splits.map"


def cookie_name(workload: str) -> str:
    """The name of the cookie for the backend of a workload's first port; each workload of one host has its own."""
    return f"reconciler-version-{blake2b(workload.encode(), digest_size=4).hexdigest()}"


def split_lines(name: str, cookie: str) -> Iterator[str]:
    """The lines of the backend ``name`` that lead clients with a cookie to their version, and give it to others.

    A client gets a new cookie only when no replica has its version. Replicas never get the cookie.
    """
    has_replicas = "{ var(txn.replicas) -m found }"
    chosen = f"str({name}|),concat(,txn.version,|),concat(,txn.pick),map_str(./{SPLITS})"
    # A worker that was replaced passes the request with its cookie to the new one.
    yield (
        f"  http-request set-var(txn.version) req.cook({cookie})"
        f" if !{{ stopping }} {{ req.cook({cookie}) -m reg ^[0-9]+$ }}"
    )
    yield (
        f"  http-request set-var(txn.replicas) str({name}|),concat(,txn.version),map_str(./{SPLITS})"
        " if { var(txn.version) -m found }"
    )
    yield f"  http-request set-var(txn.pick) rand,mod(txn.replicas) if {has_replicas}"
    yield f"  http-request set-var(txn.server) {chosen} if {has_replicas}"
    # The first choice has no free place: try once more, so that few wait beside a replica with one.
    full = f"{{ str({name}/),concat(,txn.server),srv_queue gt 0 }}"
    yield f"  http-request set-var(txn.pick) rand,mod(txn.replicas) if {has_replicas} {full}"
    yield f"  http-request set-var(txn.server) {chosen} if {has_replicas} {full}"
    # Neither does one that waits, and arrives again.
    here = "if !{ stopping } !{ var(txn.empty) -m found }"
    yield f"  http-request replace-header cookie ^{cookie}=[^;]*(;[[:space:]]*)?(.*)$ \\2 {here}"
    yield f"  http-request replace-header cookie ^(.*);[[:space:]]*{cookie}=[^;]*(.*)$ \\1\\2 {here}"
    yield "  http-request del-header cookie if { req.fhdr(cookie) -m len 0 }"
    yield "  http-response set-var(txn.from) srv_name"
    yield f"  http-response set-var(txn.answered) str({name}/),concat(,txn.from),map_str(./{SPLITS})"
    new = f"if !{has_replicas} {{ var(txn.answered) -m found }}"
    attributes = "path=/; httponly; samesite=lax"
    for condition, more in (("!{ ssl_fc }", ""), ("{ ssl_fc }", "; secure")):
        value = f'"{cookie}=%[var(txn.answered)]; {attributes}{more}"'
        yield f"  http-response add-header set-cookie {value} {new} {condition}"
    # A shared cache must not pass the cookie of one client on to others.
    yield f"  http-response add-header cache-control private {new}"


def split_entries(name: str, versions: Mapping[str, int]) -> dict[str, str]:
    """The entries of the map for the backend ``name``, whose replicas are in ``versions``."""
    replicas: defaultdict[int, list[str]] = defaultdict(list)
    for replica, version in sorted(versions.items()):
        replicas[version].append(replica)
    entries = {f"{name}/{replica}": str(version) for replica, version in versions.items()}
    for version, names in replicas.items():
        entries[f"{name}|{version}"] = str(len(names))
        entries |= {f"{name}|{version}|{number}": replica for number, replica in enumerate(names)}
    return entries


def backend_of(entry: str) -> str:
    """The name of the backend that an entry of the map is for."""
    return re.split(r"[|/]", entry, maxsplit=1)[0]
