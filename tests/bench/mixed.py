"""A directory of manifests of every kind, the same for the same number: an org of many teams, without a fault."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

FILES_OF_A_TEAM = 20
LOCATIONS = ("aws-us-west-2", "gcp-us-east1", "azure-eastus2")
REGIONS = {"aws-us-west-2": "us-west-2", "gcp-us-east1": "us-east1", "azure-eastus2": "eastus2"}

ORG = {
    "org": """kind: org
name: acme
description: Everything of Acme
spec:
  observability:
    logsRetentionDays: 30
    metricsRetentionDays: 30
  sessionTimeoutSeconds: 3600
""",
    "cloudaccounts": """kind: cloudaccount
name: aws-main
provider: aws
data:
  roleArn: arn:aws:iam::123456789012:role/platform
---
kind: cloudaccount
name: gcp-main
provider: gcp
data:
  projectId: shop-284917
""",
    "agent": "kind: agent\nname: office\ndescription: Reaches what stands in the office\n",
    "auditctx": "kind: auditctx\nname: releases\ndescription: Who released what\n",
    "people": """kind: group
name: operators
memberLinks:
  - //user/ada@example.com
  - //serviceaccount/ci
memberQuery:
  kind: user
  spec:
    terms:
      - tag: operator
        value: "true"
---
kind: serviceaccount
name: ci
description: Builds and releases
---
kind: policy
name: operators-see-workloads
targetKind: workload
target: all
bindings:
  - permissions: [view, edit]
    principalLinks: [//group/operators]
""",
}

GVC = """kind: gvc
name: {team}
description: Everything that {team} runs
tags:
  team: {team}
spec:
  staticPlacement:
    locationLinks:
      - //location/{location}
      - //location/{other}
  env:
    - name: TEAM
      value: {team}
    - name: GREETING
      value: hello from $(TEAM)
"""

IDENTITIES = """kind: identity
name: service
description: Who the services of {team} are
---
kind: identity
name: archive
description: Who may write to the archive of {team}
aws:
  cloudAccountLink: //cloudaccount/aws-main
  policyRefs:
    - aws::AmazonS3FullAccess
networkResources:
  - name: ledger
    agentLink: //agent/office
    IPs: [10.0.{low}.5]
    ports: [5432]
"""

SECRETS = """kind: secret
name: {team}-db
description: The database of {team}
type: dictionary
# reconciler: ignore secret-plain-text it is made up
data:
  user: {team}
  password: not-a-real-password-{index}
---
kind: secret
name: {team}-token
type: opaque
# reconciler: ignore secret-plain-text it is made up
data:
  encoding: plain
  payload: not-a-real-token-{index}
---
kind: secret
name: {team}-registry
type: docker
# reconciler: ignore secret-plain-text it is made up
data: '{{"auths": {{"registry.example.com": {{"auth": "bm90OnJlYWw="}}}}}}'
"""

POLICIES = """kind: policy
name: {team}-reveals
description: The services of {team} read their secrets
targetKind: secret
targetLinks:
  - //secret/{team}-db
  - //secret/{team}-token
bindings:
  - permissions:
      - reveal
    principalLinks:
      - //gvc/{team}/identity/service
      - //gvc/{team}/identity/archive
---
kind: policy
name: {team}-released-by-ci
targetKind: gvc
targetQuery:
  kind: gvc
  spec:
    match: all
    terms:
      - tag: team
        value: {team}
bindings:
  - permissions: [edit]
    principalLinks: [//serviceaccount/ci]
"""

VOLUMESET = """kind: volumeset
name: store
description: What {team} keeps
spec:
  initialCapacity: {capacity}
  performanceClass: general-purpose-ssd
  fileSystemType: xfs
  snapshots:
    schedule: "{minute} 3 * * *"
    retentionDuration: 7d
  autoscaling:
    maxCapacity: 1000
    minFreePercentage: 20
    scalingFactor: 1.5
"""

DOMAIN = """kind: domain
name: {team}.example.com
spec:
  dnsMode: cname
  certChallengeType: http01
  ports:
    - number: 443
      protocol: http2
      routes:
        - prefix: /api
          workloadLink: //gvc/{team}/workload/api-0
          port: {port}
        - prefix: /
          workloadLink: //gvc/{team}/workload/web
          port: 8080
      cors:
        allowOrigins:
          - exact: https://{team}.example.com
        allowMethods: [GET, POST]
      tls:
        minProtocolVersion: TLSV1_2
"""

WEB = """kind: workload
name: web
description: What the users of {team} see
spec:
  type: serverless
  containers:
    - name: page
      image: //image/web:1.{minor}.{patch}
      cpu: 100m
      memory: 256Mi
      ports:
        - number: 8080
          protocol: http
      env:
        - name: API_URL
          value: http://api-0.$(PLATFORM_GVC).platform.local:{port}
      readinessProbe:
        httpGet:
          path: /healthz
          port: 8080
  defaultOptions:
    autoscaling:
      metric: rps
      target: 100
      minScale: 0
      maxScale: {most}
    timeoutSeconds: 15
  localOptions:
    - location: {location}
      autoscaling:
        metric: rps
        target: 50
        minScale: 1
        maxScale: {most}
      timeoutSeconds: 15
  firewallConfig:
    external:
      inboundAllowCIDR: [0.0.0.0/0]
"""

API = """kind: workload
name: api-{number}
description: Service {number} of {team}
tags:
  team: {team}
  tier: backend
spec:
  type: standard
  identityLink: //identity/service
  containers:
    - name: main
      image: //image/service:1.{minor}.{patch}
      cpu: {cpu}m
      memory: {memory}Mi
      inheritEnv: true
      ports:
        - number: {port}
          protocol: http
      env:
        - name: DB_PASSWORD
          value: platform://secret/{team}-db.password
        - name: LOG_LEVEL
          value: info
        - name: WELCOME
          value: $(GREETING), service {number}
      readinessProbe:
        httpGet:
          path: /healthz
          port: {port}
        initialDelaySeconds: 5
        periodSeconds: 10
      livenessProbe:
        tcpSocket:
          port: {port}
        failureThreshold: 3
      lifecycle:
        preStop:
          exec:
            command: ["sleep", "10"]
      volumes:
        - uri: scratch://cache
          path: /cache
        - uri: platform://secret/{team}-token
          path: /var/token
    - name: relay
      image: registry.example.com/relay:2.{minor}
      cpu: 50m
      memory: 64Mi
      command: relay
      args: ["--to", "localhost"]
  defaultOptions:
    autoscaling:
      metric: cpu
      target: 70
      minScale: 2
      maxScale: {most}
    capacityAI: false
    timeoutSeconds: 30
  rolloutOptions:
    maxSurgeReplicas: 50%
    maxUnavailableReplicas: 0
    minReadySeconds: 5
  firewallConfig:
    external:
      inboundAllowCIDR: [203.0.113.0/24, "2001:db8::/32"]
      outboundAllowHostname: ["payments.example.com", "*.example.org"]
      outboundAllowPort:
        - protocol: https
          number: 443
    internal:
      inboundAllowType: workload-list
      inboundAllowWorkload:
        - //workload/web
"""

DB = """kind: workload
name: db
description: The database of {team}
spec:
  type: stateful
  identityLink: //identity/archive
  containers:
    - name: store
      image: //image/store:15.{patch}
      cpu: 500m
      memory: 1Gi
      ports:
        - number: 7000
          protocol: http
      env:
        - name: PASSWORD
          value: platform://secret/{team}-db.password
      readinessProbe:
        exec:
          command: ["store", "ready"]
      volumes:
        - uri: platform://volumeset/store
          path: /data
        - uri: s3://{team}-archive
          path: /archive
  defaultOptions:
    autoscaling:
      metric: disabled
      minScale: 1
      maxScale: 1
    capacityAI: false
  rolloutOptions:
    scalingPolicy: Parallel
  firewallConfig:
    external:
      outboundAllowCIDR: [0.0.0.0/0]
    internal:
      inboundAllowType: same-gvc
"""

REPORT = """kind: workload
name: report-{number}
description: Report {number} of {team}
spec:
  type: cron
  identityLink: //identity/service
  containers:
    - name: report
      image: //image/report:1.{minor}.{patch}
      cpu: 50m
      memory: 128Mi
      env:
        - name: TOKEN
          value: platform://secret/{team}-token.payload
  defaultOptions:
    capacityAI: false
  job:
    schedule: "{minute} {hour} * * 1-5"
    concurrencyPolicy: Forbid
    historyLimit: 5
    restartPolicy: Never
    activeDeadlineSeconds: 600
"""

TEAM = {
    "gvc": GVC,
    "identities": IDENTITIES,
    "secrets": SECRETS,
    "policies": POLICIES,
    "volumeset": VOLUMESET,
    "domain": DOMAIN,
    "web": WEB,
    "db": DB,
}


def team_name(index: int) -> str:
    """Team 0 → ``crew-001``: the directory and the GVC in it."""
    return f"crew-{index + 1:03d}"


def files(count: int) -> Iterator[tuple[str, str]]:
    """Path and text of about ``count`` files: those of the org, and 20 for each team."""
    for name, text in ORG.items():
        yield f"_org/{name}.yaml", text
    for name in LOCATIONS:
        provider = name.partition("-")[0]
        yield f"_org/{name}.yaml", f"kind: location\nname: {name}\nprovider: {provider}\nregion: {REGIONS[name]}\n"
    for index in range(max(1, count // FILES_OF_A_TEAM)):
        team = team_name(index)
        yield from ((f"{team}/{name}.yaml", text.format(**_numbers(index, 0))) for name, text in TEAM.items())
        for number in range(8):
            yield f"{team}/api-{number}.yaml", API.format(**_numbers(index, number))
        for number in range(4):
            yield f"{team}/report-{number}.yaml", REPORT.format(**_numbers(index, number))


def _numbers(index: int, number: int) -> dict[str, object]:
    """What the templates are filled with."""
    return {
        "team": team_name(index),
        "index": index,
        "number": number,
        "location": LOCATIONS[index % len(LOCATIONS)],
        "other": LOCATIONS[(index + 1) % len(LOCATIONS)],
        "low": index % 250,
        "capacity": 10 + index % 90,
        "port": 8080 + number,
        "minor": (index + number) % 13,
        "patch": index % 29,
        "cpu": 100 + 50 * (number % 6),
        "memory": 128 * (1 + number % 4),
        "most": 5 + index % 7,
        "minute": index % 60,
        "hour": (index + number) % 24,
    }


def write(directory: Path, count: int) -> None:
    """Write the files into ``directory``, which is made anew."""
    shutil.rmtree(directory, ignore_errors=True)
    for path, text in files(count):
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
