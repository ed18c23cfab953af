"""The proof that a domain is the org's: a TXT record that only the owner of the domain can publish."""

from __future__ import annotations

from typing import NamedTuple

from reconciler.model.kinds.domain import proof_name, proof_value

SECONDS = 10.0
"""Seconds until a lookup is ended."""


class Proof(NamedTuple):
    """Whether a domain is proven, else the ``problem``; ``answered`` is False if DNS gave no answer."""

    problem: str
    answered: bool = True


async def find_proof(domain: str, org: str, resolver: str = "") -> Proof:
    """Look up the record of ``domain``, in at most ``SECONDS``.

    ``resolver`` is the ``HOST:PORT`` of the DNS server to ask; "" for those of the system.
    """
    from dns.asyncresolver import Resolver
    from dns.exception import DNSException
    from dns.resolver import NXDOMAIN, NoAnswer

    expected = f"the TXT record {proof_name(domain)} with the value {proof_value(org)}"
    try:
        asking = Resolver(configure=not resolver)
        if resolver:
            host, _, port = resolver.rpartition(":")
            asking.nameservers, asking.port = [host.strip("[]")], int(port)
        asking.lifetime = SECONDS
        answer = await asking.resolve(proof_name(domain), "TXT", search=False)
    except (NXDOMAIN, NoAnswer):
        return Proof(f"{expected} does not exist")
    except (DNSException, OSError, ValueError):
        return Proof(f"{expected} cannot be read: DNS gives no answer", answered=False)
    if any(b"".join(value.strings) == proof_value(org).encode() for value in answer):
        return Proof("")
    return Proof(f"{expected} does not exist; another value is there")
