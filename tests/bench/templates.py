"""The texts that the manifests of the benchmark are made of."""

from __future__ import annotations

GVC = """kind: gvc
name: {name}
description: {description}
{tags}spec:
  staticPlacement:
    locationLinks:
      - //location/{location}
{pull}{env}  loadBalancer:
    dedicated: false
    trustedProxies: 0
"""

_SECRET = """kind: secret
name: {name}
description: {description}
{tags}type: """

_IGNORE = "# reconciler: ignore secret-plain-text it is made up\n"

SECRETS = {
    "db": f"{_SECRET}dictionary\n{_IGNORE}data:\n  host: db.example.com\n  user: {{owner}}\n  password: {{password}}\n",
    "token": f"{_SECRET}opaque\n{_IGNORE}data:\n  encoding: plain\n  payload: {{payload}}\n",
    "registry": _SECRET
    + f"""docker
{_IGNORE}data: '{{{{"auths": {{{{"registry.example.com": {{{{"auth": "bm90OnJlYWw="}}}}}}}}}}}}'
""",
}

IDENTITY = """kind: identity
name: {name}
gvc: {gvc}
description: {description}
{tags}{resources}"""

POLICY = """kind: policy
name: {name}
description: {description}
{tags}targetKind: secret
targetLinks:
  - //secret/{gvc}-db
  - //secret/{gvc}-token
bindings:
  - permissions:{permissions}
    principalLinks:
      - //gvc/{gvc}/identity/service
"""

TEAM_POLICY = """kind: policy
name: {name}
description: {description}
{tags}targetKind: gvc
targetQuery:
  kind: gvc
  spec:
    match: all
    terms:
      - tag: team
        value: {team}
bindings:
  - permissions:{permissions}
    principalLinks:
      - //serviceaccount/{team}-ci
"""

VOLUMESET = """kind: volumeset
name: store
gvc: {gvc}
description: {description}
{tags}spec:
  initialCapacity: {capacity}
  performanceClass: general-purpose-ssd
  fileSystemType: xfs
  snapshots:
    createFinalSnapshot: true
    retentionDuration: 7d
    schedule: {schedule}
  autoscaling:
    maxCapacity: 1000
    minFreePercentage: 20
    scalingFactor: 1.5
"""

_HEAD = """kind: workload
name: {name}
gvc: {gvc}
description: {description}
{tags}spec:
"""

_CONTAINER = """  identityLink: //identity/service
  containers:
    - name: main
      image: //image/{language}-service:1.{minor}.{patch}
      cpu: {cpu}m
      memory: {memory}Mi
      inheritEnv: true
{command}"""

_ENV = """      env:
        - name: LOG_LEVEL
          value: {level}
        - name: DB_PASSWORD
          value: platform://secret/{gvc}-db.password
        - name: REGION
          value: $(PLATFORM_LOCATION)
        - name: SHARD
          value: {shard}
"""

_PORTS = """      ports:
        - number: {port}
          protocol: http
"""

_PROBES = """      readinessProbe:
        httpGet:
          path: /healthz
          port: {port}
        initialDelaySeconds: {delay}
        periodSeconds: 10
        successThreshold: 1
        failureThreshold: 3
      livenessProbe:
        tcpSocket:
          port: {port}
        failureThreshold: 3
"""

_TOKEN = """      volumes:
        - uri: platform://secret/{gvc}-token
          path: /var/token
        - uri: scratch://cache
          path: /cache
"""

_OPTIONS = """  defaultOptions:
    autoscaling:
      metric: cpu
      target: {target}
      minScale: {least}
      maxScale: {most}
    timeoutSeconds: {timeout}
    capacityAI: false
    debug: false
    suspend: false
"""

LOCAL_OPTIONS = """  localOptions:
    - location: //location/{location}
      autoscaling:
        metric: cpu
        target: {target}
        minScale: {least}
        maxScale: {most}
      timeoutSeconds: {timeout}
      capacityAI: false
"""

_ROLLOUT = """  rolloutOptions:
    maxSurgeReplicas: 25%
    minReadySeconds: {delay}
"""

_FIREWALL = """  firewallConfig:
    external:
{inbound}      outboundAllowHostname:
        - {name}.example.com
{firewall}    internal:
      inboundAllowType: same-gvc
"""

INBOUND = """      inboundAllowCIDR:
        - 0.0.0.0/0
"""

EMPTY_FIREWALL = """      outboundAllowCIDR: []
      outboundAllowPort: []
"""

BLOCK_COMMAND = """      command: sh
      args:
        - -c
        - |
          set -eu
          mkdir -p /cache/{name}
          exec /usr/local/bin/serve
"""

FLOW_COMMAND = "      args: [--config, /etc/service.yaml]\n"

API = f"{_HEAD}  type: standard\n{_CONTAINER}{_PORTS}{_ENV}{_PROBES}{_TOKEN}{_OPTIONS}{{local}}{_ROLLOUT}{_FIREWALL}"

WEB = (f"{_HEAD}  type: serverless\n{_CONTAINER}{_PORTS}{_ENV}{_PROBES}{_TOKEN}{_OPTIONS}{{local}}{_FIREWALL}").replace(
    "metric: cpu", "metric: rps"
)

_STORAGE = """      volumes:
        - uri: platform://volumeset/store
          path: /data
"""

STORE = f"{_HEAD}  type: stateful\n{_CONTAINER}{_PORTS}{_ENV}{_PROBES}{_STORAGE}{_OPTIONS}{{local}}{_FIREWALL}"

REPORT = (
    f"{_HEAD}  type: cron\n{_CONTAINER}{_ENV}{_TOKEN}"
    """  defaultOptions:
    capacityAI: false
    suspend: false
  job:
    schedule: {minute} {hour} * * 1-5
    concurrencyPolicy: Forbid
    historyLimit: 5
    restartPolicy: Never
    activeDeadlineSeconds: 600
"""
    f"{_FIREWALL}"
)

DOMAIN = """kind: domain
name: {name}
description: {description}
{tags}spec:
  dnsMode: cname
  certChallengeType: http01
  ports:
    - number: 443
      protocol: http2
      routes:
        - prefix: /
          workloadLink: //gvc/{gvc}/workload/{workload}
          port: {port}
      cors:
        allowOrigins:
          - exact: https://{name}
        allowMethods:{methods}
      tls:
        minProtocolVersion: TLSV1_2
"""

OTHERS = {
    "serviceaccount": "kind: serviceaccount\nname: {team}-ci\ndescription: {description}\n{tags}",
    "group": """kind: group
name: {team}-operators
description: {description}
{tags}memberLinks:
  - //serviceaccount/{team}-ci
""",
    "cloudaccount": """kind: cloudaccount
name: {team}-gcp
description: {description}
{tags}provider: gcp
data:
  projectId: shop-{number:06d}
""",
    "agent": "kind: agent\nname: {team}-office\ndescription: {description}\n{tags}",
    "auditctx": "kind: auditctx\nname: {team}-releases\ndescription: {description}\n{tags}",
    "ipset": """kind: ipset
name: {team}-edge
description: {description}
{tags}spec:
  link: //gvc/{gvc}
  locations:
    - name: //location/{location}
      retentionPolicy: keep
""",
    "image": "kind: image\nname: {team}:v{number}\ndescription: {description}\n{tags}",
}
