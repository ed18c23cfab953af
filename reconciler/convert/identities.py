"""Identities and policies for workloads to read secrets."""

from __future__ import annotations

from reconciler.convert.drafts import Body, Draft, make_draft
from reconciler.convert.names import Names
from reconciler.model.key import Kind


def identity_for(gvc: str, workload: str, secrets: set[str], access: Body, names: Names) -> tuple[str, list[Draft]]:
    """An identity for ``workload`` with its cloud ``access``, and a policy to reveal ``secrets``, if any.

    Returns the identity's name and the drafts.
    """
    identity = names.take(Kind.IDENTITY, gvc, (workload,))
    drafts = [make_draft(Kind.IDENTITY, identity, gvc, None, access)]
    if secrets:
        policy = names.take(Kind.POLICY, "", (f"{gvc}-{workload}-reveal",))
        binding = {"permissions": ["reveal"], "principalLinks": [f"//gvc/{gvc}/identity/{identity}"]}
        targets = [f"//secret/{name}" for name in sorted(secrets)]
        rest = {"targetKind": "secret", "targetLinks": targets, "bindings": [binding]}
        drafts.append(make_draft(Kind.POLICY, policy, "", None, rest))
    return identity, drafts
