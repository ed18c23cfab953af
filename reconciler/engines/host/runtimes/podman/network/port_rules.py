"""The rules of iptables that lead ports of this host to containers, after a service that was killed.

A service that is killed while it sets up or ends a network leaves rules for a container that does not exist. The first
rule for a port counts, so they would take the port from the next container that gets it. The rules are those of
Podman's netavark: one names a container and jumps to the chain of its network, which has the addresses.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Collection, Iterator
from contextlib import suppress
from hashlib import sha512

_SECONDS = 10.0
_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
_PORTS, _HASH_LENGTH = "NETAVARK-HOSTPORT-DNAT", 13
_PORT = re.compile(r" --dport (\d+)\b")
_OWNER = re.compile(r'--comment "dnat name: (\S+) id: ([0-9a-f]{64})"')
_ADDRESS = " --to-destination "


def port_rules() -> list[str]:
    """The rules of this host that translate addresses, as ``iptables -S`` lists them; none without iptables. Blocks."""
    iptables = shutil.which("iptables", path=_PATH)
    if iptables is None:
        return []
    with suppress(OSError, subprocess.TimeoutExpired):
        # With -w it waits for others that change rules at this moment.
        return _run_command([iptables, "-w", "-t", "nat", "-S"]).splitlines()
    return []


def remove_lost_rules(listing: Collection[str], network: str, containers: Collection[str]) -> None:
    """Remove the rules in ``listing`` for ports of containers of ``network`` that are not ``containers``. Blocks.

    Does nothing if some of them are gone meanwhile.
    """
    _delete_rules(lost_rules(listing, network, containers))


def remove_network_rules(network: str) -> None:
    """Remove all rules and chains of a network that was deleted. Blocks."""
    listing = port_rules()
    chains = [name for name in _get_chain_names(network) if f"-N {name}" in listing]
    jumps = [rule for rule in listing if rule.startswith("-A ") and rule.rpartition(" -j ")[2] in chains]
    # A chain is empty, and nothing jumps to it, before it is deleted.
    _delete_rules([*jumps, *(f"-F {name}" for name in chains), *(f"-X {name}" for name in chains)])


def lost_rules(listing: Collection[str], network: str, containers: Collection[str]) -> list[str]:
    """The rules in ``listing`` (of ``iptables -S``) of ``network`` whose container is not one of ``containers``."""
    chain, owned = _get_chain_names(network)[1], dict(_list_owned_rules(listing, network))
    lost = [rule for rule, (_, container) in owned.items() if container not in containers]
    living = {port for port, container in owned.values() if container in containers}
    texts = list(lost)
    for port in {owned[rule][0] for rule in lost}:
        rules = [rule for rule in listing if rule.startswith(f"-A {chain} ") and f" --dport {port} " in f"{rule} "]
        addresses = [rule for rule in rules if _ADDRESS in rule]
        # The newest rule is that of the container that exists.
        texts += addresses[:-1] if port in living else rules
    return texts


def _list_owned_rules(listing: Collection[str], network: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """The rules that name a container of ``network``, each with its port and the ID of the container."""
    for rule in listing:
        port, owner = _PORT.search(rule), _OWNER.search(rule)
        if rule.startswith(f"-A {_PORTS} ") and port and owner and owner[1] == network:
            yield rule, (port[1], owner[2])


def _get_chain_names(network: str) -> tuple[str, str]:
    """The names of the chains of a network: for what leaves it, and for ports that lead into it."""
    # netavark makes the names of its chains like this.
    part = sha512(network.encode()).hexdigest().upper()[:_HASH_LENGTH]
    return f"NETAVARK-{part}", f"NETAVARK-DN-{part}"


def _delete_rules(rules: Collection[str]) -> None:
    """Delete rules as in a list, all or none; what begins with another command than -A is carried out as it is."""
    restore = shutil.which("iptables-restore", path=_PATH)
    if not rules or restore is None:
        return
    lines = [f"-D{rule[2:]}" if rule.startswith("-A ") else rule for rule in rules]
    with suppress(OSError, subprocess.TimeoutExpired):
        # Without --noflush it would empty the whole table first.
        _run_command([restore, "-w", "--noflush"], "\n".join(["*nat", *lines, "COMMIT", ""]))


def _run_command(command: list[str], text: str = "") -> str:
    done = subprocess.run(command, capture_output=True, check=False, timeout=_SECONDS, text=True, input=text)
    return done.stdout
