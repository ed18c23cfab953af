"""The plain fixture: workloads as lines ``key: value`` and nothing else, to compare figures with former commits."""

from __future__ import annotations

from collections.abc import Iterator

LOCATIONS = ("aws-us-west-2", "gcp-us-east1")
PRINCIPALS_IN_A_POLICY = 200
"""A binding names at most as many (docs/platform/fields.md#policy)."""
LANGUAGES = ("go", "java", "python", "rust", "node")
LEVELS = ("debug", "info", "warning")

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


def gvc_of(index: int) -> str:
    """The GVC of a workload among the first hundred."""
    return team_name(index // 100)


def files(count: int) -> Iterator[tuple[str, str]]:
    """Path and text of every file of a repository with ``count`` workloads, a folder for every hundred."""
    folders = max(1, count // 100)
    teams = [team_name(folder) for folder in range(folders)]
    yield "_org/secrets.yaml", SECRET
    for number, start in enumerate(range(0, folders, PRINCIPALS_IN_A_POLICY), 1):
        links = [f"      - //gvc/{team}/identity/api\n" for team in teams[start : start + PRINCIPALS_IN_A_POLICY]]
        yield f"_org/policy-{number:03d}.yaml", POLICY.format(number=number) + "".join(links)
    share, more = divmod(count, folders)
    first = 0
    for folder, team in enumerate(teams):
        yield f"{team}/gvc.yaml", GVC.format(team=team, location=LOCATIONS[folder % len(LOCATIONS)])
        yield f"{team}/identity.yaml", IDENTITY.format(team=team)
        after = first + share + (folder < more)
        for index in range(first, after):
            yield f"{team}/{workload_name(index)}.yaml", workload(index, folder, first)
        first = after
