"""About 200 resources of many kinds, changed a lot in a second commit and partly taken away in a third."""

from __future__ import annotations

from tests.support.git import File

TEAMS = 4
SERVICES = 36
"""Workloads of each team; the first three mount a volume set each."""
STATEFUL = 3
SECRETS = 6

_WORKLOAD = """kind: workload
name: {name}
tags: {{team: {team}{waits}}}
spec:
  type: {type}
  identityLink: //identity/api
  containers:
    - name: main
      image: //image/{name}:1.0.{release}
      ports: [{{number: 7000, protocol: http}}]
      env:
        - {{name: PASSWORD, value: platform://secret/db-{secret}.password}}
{volumes}  defaultOptions:
    autoscaling: {{metric: {metric}, minScale: 1, maxScale: {most}}}
    capacityAI: false
"""
_VOLUMES = """      volumes: [{{uri: platform://volumeset/{name}, path: /store}}]
"""
_VOLUMESET = """kind: volumeset
name: {name}
spec: {{initialCapacity: {capacity}, performanceClass: general-purpose-ssd, fileSystemType: ext4}}
"""
_GVC = """kind: gvc
name: {team}
description: Release {release}
spec: {{staticPlacement: {{locationLinks: [{links}]}}}}
"""
_POLICY = """kind: policy
name: reveal-{number}
targetKind: secret
targetLinks: [//secret/db-{number}]
bindings: [{{permissions: [reveal], principalLinks: [{links}]}}]
"""


def first() -> dict[str, File]:
    """Everything anew."""
    return _org(0) | {path: text for team in range(TEAMS) for path, text in _team(team, 0).items()}


def second() -> dict[str, File]:
    """New images here, more replicas there, larger volumes, another password, one GVC at one place less or more."""
    changed = _org(1)
    for team in range(TEAMS):
        changed |= {path: text for path, text in _team(team, 1).items() if not path.endswith("5.yaml")}
    return changed


def third() -> dict[str, File]:
    """A third of the services, a whole GVC without volumes, and a volume set, whose delete waits for approval."""
    gone: dict[str, File] = {}
    for team in range(TEAMS):
        gone |= {f"{_name(team)}/w{index:02d}.yaml": None for index in range(STATEFUL, SERVICES, 3)}
    gone |= dict.fromkeys(_bare_team())
    return gone | {"t0/w00.yaml": None, "t0/store-00.yaml": None}


def _name(team: int) -> str:
    return f"t{team}"


def _org(release: int) -> dict[str, File]:
    files: dict[str, File] = {}
    for number in range(SECRETS):
        password = f"p{number}-{release if number % 2 else 0}"
        files[f"_org/secret-{number}.yaml"] = (
            f"kind: secret\nname: db-{number}\ntype: dictionary\ndata: {{password: {password}}}\n"
        )
        links = ", ".join(f"//gvc/{_name(team)}/identity/api" for team in range(TEAMS))
        files[f"_org/policy-{number}.yaml"] = _POLICY.format(number=number, links=links)
    return files | _bare_team()


def _bare_team() -> dict[str, File]:
    """A GVC with nothing in it that holds volumes."""
    files: dict[str, File] = {"bare/gvc.yaml": _GVC.format(team="bare", release=0, links="//location/here")}
    for index in range(6):
        text = _WORKLOAD.replace("  identityLink: //identity/api\n", "").partition("      env:")[0]
        head = text.format(name=f"b{index}", team="bare", waits="", type="standard", release=0)
        files[f"bare/b{index}.yaml"] = head
    return files


def _team(number: int, release: int) -> dict[str, File]:
    team = _name(number)
    places = ["here"] if (number == 1 and not release) else ["here", "there"]
    links = ", ".join(f"//location/{place}" for place in places)
    files: dict[str, File] = {
        f"{team}/gvc.yaml": _GVC.format(team=team, release=release, links=links),
        f"{team}/identity.yaml": f"kind: identity\nname: api\ndescription: Release {release}\n",
    }
    for index in range(SERVICES):
        files[f"{team}/w{index:02d}.yaml"] = _service(team, index, release)
    for index in range(STATEFUL):
        files[f"{team}/store-{index:02d}.yaml"] = _VOLUMESET.format(name=f"s{index:02d}", capacity=10 + 5 * release)
    return files


def _service(team: str, index: int, release: int) -> str:
    stateful = index < STATEFUL
    waits = f', reconciler/depends-on: "workload/{team}/w{index - 1:02d}"' if index % 12 == 11 else ""
    return _WORKLOAD.format(
        name=f"w{index:02d}",
        team=team,
        waits=waits,
        type="stateful" if stateful else "standard",
        release=release if index % 2 else 0,
        secret=index % SECRETS,
        volumes=_VOLUMES.format(name=f"s{index:02d}") if stateful else "",
        metric="disabled" if stateful else "cpu",
        most=1 if stateful else 3 + release,
    )
