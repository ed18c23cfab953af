"""A repository of many workload manifests, the same for the same numbers: what the benchmarks and soak runs read."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pygit2

LOCATIONS = ("aws-us-west-2", "gcp-us-east1")
FIRST_COMMIT = 1_767_225_600
"""2026-01-01T00:00:00Z, so that the same arguments give the same commit id."""
AUTHOR = "Bench <bench@example.com>"
PRINCIPALS_IN_A_POLICY = 200
"""A binding names at most as many (docs/platform/fields.md#policy)."""
LANGUAGES = ("go", "java", "python", "rust", "node")
LEVELS = ("debug", "info", "warning")
IMAGE_TAG = re.compile(rb"(?m)^(      image: \S+:\d+\.\d+\.)(\d+)$")

GVC = """kind: gvc
name: {team}
description: Everything that {team} runs
tags:
  team: {team}
spec:
  staticPlacement:
    locationLinks:
      - //location/{location}
  env:
    - name: TEAM
      value: {team}
"""

IDENTITY = """kind: identity
name: api
description: Who the services of {team} are
"""

SECRET = """kind: secret
name: db
description: The database that all services share
type: dictionary
data:
  user: bench
  password: not-a-real-password
"""

POLICY = """kind: policy
name: reveal-db-{number:03d}
description: Services read the password of their database
targetKind: secret
targetLinks:
  - //secret/db
bindings:
  - permissions:
      - reveal
    principalLinks:
"""

WORKLOAD = """# {language} service {index} of {team}
kind: workload
name: {name}
description: Service {index} of {team}, written in {language}
tags:
  team: {team}
  tier: backend
  language: {language}
{depends}spec:
  type: standard
  identityLink: //identity/api
  containers:
    - name: main
      image: //image/{language}-service:1.{minor}.{patch}
      cpu: {cpu}m
      memory: {memory}Mi
      inheritEnv: true
      ports:
        - number: {port}
          protocol: http
      env:
        - name: LOG_LEVEL
          value: {level}
        - name: DB_PASSWORD
          value: platform://secret/db.password
        - name: REGION
          value: $(PLATFORM_LOCATION)
        - name: SHARD
          value: "{index}"
      readinessProbe:
        httpGet:
          path: /healthz
          port: {port}
        initialDelaySeconds: {delay}
        periodSeconds: 10
      livenessProbe:
        tcpSocket:
          port: {port}
        failureThreshold: 3
      volumes:
        - uri: scratch://cache
          path: /cache
  defaultOptions:
    autoscaling:
      metric: cpu
      target: {target}
      minScale: {least}
      maxScale: {most}
    timeoutSeconds: {timeout}
    capacityAI: false
    debug: false
{local}  rolloutOptions:
    maxSurgeReplicas: 25%
    minReadySeconds: {delay}
  firewallConfig:
    external:
      inboundAllowCIDR:
        - 0.0.0.0/0
      outboundAllowHostname:
        - service-{index}.example.com
    internal:
      inboundAllowType: same-gvc
"""

LOCAL = """  localOptions:
    - location: {location}
      autoscaling:
        metric: cpu
        target: {target}
        minScale: {least}
        maxScale: {most}
      timeoutSeconds: {timeout}
      capacityAI: false
"""


def team_name(folder: int) -> str:
    """Folder 0 → ``team-0001``: the directory and the GVC in it."""
    return f"team-{folder + 1:04d}"


def workload_name(index: int) -> str:
    """Workload 7 → ``api-000007``, unique in the repository."""
    return f"api-{index:06d}"


def workload(index: int, folder: int, first: int) -> str:
    """The manifest of one workload, about 1.5 KB; ``first`` is the index of the folder's first workload."""
    team, location = team_name(folder), LOCATIONS[folder % len(LOCATIONS)]
    waits = index % 20 == 5 and index > first
    options = {
        "target": 50 + index % 40,
        "least": 1 + index % 3,
        "most": 5 + index % 7,
        "timeout": 5 + index % 50,
    }
    return WORKLOAD.format(
        index=index,
        team=team,
        name=workload_name(index),
        language=LANGUAGES[index % len(LANGUAGES)],
        depends=f"  reconciler/depends-on: workload/{team}/{workload_name(index - 1)}\n" if waits else "",
        minor=index % 13,
        patch=index % 29,
        cpu=100 + 50 * (index % 8),
        memory=128 * (1 + index % 6),
        port=8080 + index % 10,
        level=LEVELS[index % len(LEVELS)],
        delay=index % 15,
        local=LOCAL.format(location=location, **options | {"most": options["most"] + 3}) if index % 2 else "",
        **options,
    )


def files(count: int, folders: int) -> Iterator[tuple[str, str]]:
    """Path and text of every file of a repository with ``count`` workloads."""
    teams = [team_name(folder) for folder in range(folders)]
    yield "_org/secrets.yaml", SECRET
    for number, start in enumerate(range(0, folders, PRINCIPALS_IN_A_POLICY), 1):
        links = [f"      - //gvc/{team}/identity/api\n" for team in teams[start : start + PRINCIPALS_IN_A_POLICY]]
        yield f"_org/policy-{number:03d}.yaml", POLICY.format(number=number) + "".join(links)
    each, more = divmod(count, folders)
    first = 0
    for folder, team in enumerate(teams):
        yield f"{team}/gvc.yaml", GVC.format(team=team, location=LOCATIONS[folder % len(LOCATIONS)])
        yield f"{team}/identity.yaml", IDENTITY.format(team=team)
        after = first + each + (folder < more)
        for index in range(first, after):
            yield f"{team}/{workload_name(index)}.yaml", workload(index, folder, first)
        first = after


def generate(path: Path, count: int, folders: int | None = None, branch: str = "main") -> None:
    """Make ``path`` a bare repository whose ``branch`` holds ``count`` workload manifests.

    ``folders`` defaults to one per hundred workloads. Equal arguments give equal commit ids. Raises
    FileExistsError where ``path`` is not empty, and subprocess.CalledProcessError where git fails.
    """
    folders = max(1, count // 100) if folders is None else folders
    if path.exists() and any(path.iterdir()):
        raise FileExistsError(f"{path} is not empty")
    subprocess.run(["git", "init", "--quiet", "--bare", f"--initial-branch={branch}", str(path)], check=True)
    command = ["git", "-C", str(path), "fast-import", "--quiet", "--done"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as importer:
        assert importer.stdin is not None
        write_commit(importer.stdin, branch, count, folders)
    if importer.returncode:
        raise subprocess.CalledProcessError(importer.returncode, command)


def write_commit(stream: IO[bytes], branch: str, count: int, folders: int) -> None:
    """The one commit that holds every file, in the words of git fast-import."""
    message = f"Deploy {count} services of {folders} teams"
    stream.write(f"commit refs/heads/{branch}\ncommitter {AUTHOR} {FIRST_COMMIT} +0000\n".encode())
    stream.write(f"data {len(message)}\n{message}\n".encode())
    for name, text in files(count, folders):
        body = text.encode()
        stream.write(f"M 100644 inline {name}\ndata {len(body)}\n".encode() + body)
    stream.write(b"done\n")


def commit_change(path: Path, files: int, seed: int, branch: str = "main") -> str:
    """Give ``files`` workloads a new image tag in one more commit on ``branch``; its id.

    Equal repositories, numbers and seeds give equal commits. Raises ValueError where there are fewer workloads.
    """
    repository = pygit2.Repository(str(path))
    parent = repository.branches.local[branch].peel(pygit2.Commit)
    root = repository.TreeBuilder(parent.tree)
    for team, names in chosen(parent.tree, files, random.Random(seed)).items():
        folder = repository.TreeBuilder(parent.tree[team].peel(pygit2.Tree))
        for name in names:
            before = parent.tree[f"{team}/{name}"].peel(pygit2.Blob).data
            folder.insert(name, repository.create_blob(released(before)), pygit2.enums.FileMode.BLOB)
        root.insert(team, folder.write(), pygit2.enums.FileMode.TREE)
    author = pygit2.Signature("Bench", "bench@example.com", parent.commit_time + 60, 0)
    message = f"Release {files} services, seed {seed}\n"
    reference = f"refs/heads/{branch}"
    return str(repository.create_commit(reference, author, author, message, root.write(), [parent.id]))


def chosen(root: pygit2.Tree, files: int, chance: random.Random) -> dict[str, list[str]]:
    """Names of ``files`` workload manifests by folder; only the folders that chance falls on are read."""
    teams = entries(root, "team-")
    unused: dict[str, list[str]] = {}
    taken: dict[str, list[str]] = {}
    while files:
        if not teams:
            raise ValueError(f"there are {files} workloads too few to change so many")
        team = chance.choice(teams)
        if team not in unused:
            unused[team] = entries(root[team].peel(pygit2.Tree), "api-")
            chance.shuffle(unused[team])
        if unused[team]:
            taken.setdefault(team, []).append(unused[team].pop())
            files -= 1
        else:
            teams.remove(team)
    return taken


def entries(tree: pygit2.Tree, prefix: str) -> list[str]:
    """Names in ``tree`` that begin with ``prefix``."""
    return [str(entry.name) for entry in tree if str(entry.name).startswith(prefix)]


def released(manifest: bytes) -> bytes:
    """``manifest`` with the last number of its image tag one higher."""
    return IMAGE_TAG.sub(lambda match: match[1] + str(int(match[2]) + 1).encode(), manifest)


def main(arguments: list[str]) -> int:
    """``python -m tests.bench.generate DIR COUNT``; 2 where the arguments are not these two."""
    if len(arguments) != 2 or not arguments[1].isdigit():
        print("usage: python -m tests.bench.generate DIR COUNT", file=sys.stderr)
        return 2
    generate(Path(arguments[0]), int(arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
