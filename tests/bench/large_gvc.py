"""Fixtures in which one thing has many neighbours: workloads of one GVC that read the same secrets."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.manifests import LANGUAGES, LOCATIONS
from tests.bench.templates import API, GVC, IDENTITY, INBOUND, POLICY, SECRETS

NAME = "shop"
SHARED = "_shop/"
"""The folder of what all workloads have in common."""
GVC_FILE, SECRET_FILE = f"{SHARED}gvc.yaml", f"{SHARED}db.yaml"
DOCUMENTS = "shop.yaml"
IN_A_FOLDER = 100


def workload_name(index: int) -> str:
    """Workload 7 → ``api-000007``."""
    return f"api-{index:06d}"


def workload_file(index: int) -> str:
    """The path of a workload."""
    return f"team-{index // IN_A_FOLDER + 1:04d}/{workload_name(index)}.yaml"


def files(count: int) -> Iterator[tuple[str, str]]:
    """Path and text of ``count`` workloads of one GVC, in folders of a hundred, and of what they share."""
    env = "  env:\n    - name: RELEASE\n      value: release-1\n"
    yield GVC_FILE, GVC.format(**_named(NAME, "Release 1 of all services"), location=LOCATIONS[0], env=env, pull="")
    secret = {"owner": NAME, "password": "not-a-real-password-1", "payload": "not-a-real-token"}
    yield SECRET_FILE, SECRETS["db"].format(**_named(f"{NAME}-db", "The database"), **secret)
    yield f"{SHARED}token.yaml", SECRETS["token"].format(**_named(f"{NAME}-token", "The token"), **secret)
    yield f"{SHARED}identity.yaml", IDENTITY.format(**_named("service", "The services"), gvc=NAME, resources="")
    policy = POLICY.format(**_named("reveal", "They read their secrets"), gvc=NAME, permissions="\n      - reveal")
    yield f"{SHARED}policy.yaml", policy
    yield from ((workload_file(index), _workload(index)) for index in range(count))


def documents(count: int) -> Iterator[tuple[str, str]]:
    """The same as documents of one file."""
    yield DOCUMENTS, "---\n".join(text for _, text in files(count))


def _named(name: str, description: str) -> dict[str, str]:
    return {"name": name, "description": description, "tags": "tags: {}\n"}


def _workload(index: int) -> str:
    return API.format(
        **_named(workload_name(index), f"Service {index}"),
        gvc=NAME,
        language=LANGUAGES[index % len(LANGUAGES)],
        minor=index % 13,
        patch=index % 29,
        cpu=100 + 50 * (index % 8),
        memory=128 * (1 + index % 6),
        port=8080 + index % 10,
        level="info",
        shard=f"'{index}'",
        delay=index % 15,
        command="",
        firewall="",
        inbound=INBOUND,
        local="",
        target=50 + index % 40,
        least=1 + index % 3,
        most=5 + index % 7,
        timeout=5 + index % 50,
    )
