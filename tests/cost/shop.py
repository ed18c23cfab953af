"""Manifests of shops: GVCs of as many workloads as wanted, which share an identity, a policy and a secret."""

from __future__ import annotations

Files = dict[str, str]

NEAR, FAR = "aws-us-west-2", "gcp-us-east1"

_GVC = """kind: gvc
name: {name}
description: Release {release}
spec:
  staticPlacement: {{locationLinks: [//location/{location}]}}
  env: [{{name: RELEASE, value: 'v{variable}'}}]
"""
_WORKLOAD = """kind: workload
name: {gvc}-{number}
gvc: {gvc}
spec:
  type: standard
  identityLink: //identity/service
  containers:
    - name: main
      image: nginx:{image}
      inheritEnv: {inherits}
      env: [{{name: PASSWORD, value: platform://secret/db.password}}]
"""
_SECRET = """kind: secret
name: {name}
type: dictionary
# reconciler: ignore secret-plain-text it is made up
data: {{password: {value}}}
"""
_IDENTITY = "kind: identity\nname: service\ngvc: {gvc}\ndescription: Release {release}\n"
_POLICY = """kind: policy
name: reveal-{gvc}
description: Release {release}
targetKind: secret
targetLinks: [//secret/db]
bindings: [{{permissions: [reveal], principalLinks: [//gvc/{gvc}/identity/service]}}]
"""


def gvc(name: str = "shop", *, release: int = 1, variable: int = 1, location: str = NEAR) -> str:
    """A GVC at one location; ``release`` is in its description, ``variable`` in the environment of members."""
    return _GVC.format(name=name, release=release, variable=variable, location=location)


def location(release: int = 1) -> str:
    """The location ``NEAR``; ``release`` is in its description."""
    provider, _, region = NEAR.partition("-")
    return f"kind: location\nname: {NEAR}\nprovider: {provider}\nregion: {region}\ndescription: Release {release}\n"


def workload(number: int, *, image: int = 1, inherits: bool = False, gvc: str = "shop") -> str:
    """A workload that uses the secret; with ``inherits`` the variables of its GVC too."""
    return _WORKLOAD.format(number=number, gvc=gvc, image=image, inherits=str(inherits).lower())


def reached_by_others(count: int) -> Files:
    """A shop of ``count`` workloads, which all let one of them in."""
    allowed = "  firewallConfig:\n    internal:\n      inboundAllowType: workload-list\n"
    allowed += "      inboundAllowWorkload: [//gvc/shop/workload/shop-3]\n"
    return {path: text + allowed if "kind: workload" in text else text for path, text in shop(count).items()}


def secret(name: str = "db", value: str = "'1'") -> str:
    """A dictionary of one password."""
    return _SECRET.format(name=name, value=value)


def identity(release: int = 1, *, gvc: str = "shop") -> str:
    """The identity of all workloads; ``release`` is in its description."""
    return _IDENTITY.format(gvc=gvc, release=release)


def policy(release: int = 1, *, gvc: str = "shop") -> str:
    """The policy by which the identity reads the secret; ``release`` is in its description."""
    return _POLICY.format(gvc=gvc, release=release)


def shop(count: int, *, inheriting: int = 0, name: str = "shop", location: str = NEAR) -> Files:
    """A GVC of ``count`` workloads in one folder, of which ``inheriting`` use its variables."""
    files = {
        "db.yaml": secret(),
        f"{name}/gvc.yaml": gvc(name, location=location),
        f"{name}/identity.yaml": identity(gvc=name),
        f"{name}/policy.yaml": policy(gvc=name),
    }
    workloads = (workload(number, inherits=number < inheriting, gvc=name) for number in range(count))
    return files | {f"{name}/{number}.yaml": text for number, text in enumerate(workloads)}
