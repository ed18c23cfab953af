"""docs/convert.md: the conversion of Kubernetes resources and exports, with its findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from docs.generate.tables import table
from reconciler.convert.kamal import fields as kamal
from reconciler.convert.kubernetes import convert, unused_fields
from reconciler.convert.quadlet import fields as quadlet
from reconciler.convert.rules import RULEBOOK

HEAD = """\
# Converting and importing

`reconciler convert` converts Kubernetes YAML or JSON, [compose files](#compose), [deploy.yml of Kamal](#kamal) and
[quadlets of Podman](#quadlets) to manifests: files, directories, or standard input, all together. Given a file of
another tool, each command names the one that takes it. The manifests go to standard output in the order in which they
are applied, or with `--out DIR` to a file for each resource; warnings go to standard error. The result is a start: read
the warnings, add a GVC with its locations (`--location NAME` writes one), and run `reconciler validate`. To run files
as they are: [`reconciler up -f compose.yaml`](commands.md#up) and `up --k8s DIR`.

With `--commit` the files are written below `--out`, or below the current directory, and committed in its repository:
with your name and your hooks, and with a subject that says what was converted. It is refused while something else is
staged, and for secrets in plain text unless `--plain-secrets` is given. Converted files of the repository are then
listed in its `.reconcilerignore`, since they are no manifests.

What a conversion makes is checked before it is written: what would be refused is an error at what it is made of, and
nothing is written; of an import, it is a warning.

`reconciler import` tidies manifests that the platform exported: it removes defaults and fields that the platform sets,
makes links into the org relative, and replaces another spelling of the platform (`--scheme`). Comments are lost. The
result declares the same as the original.

## Kinds and fields of Kubernetes

"""

KINDS = (
    ("Deployment, ReplicaSet, ReplicationController, DaemonSet, StatefulSet",
     "`workload`, of type stateful if a container mounts a claim, else standard"),
    ("CronJob", "`workload` of type cron"),
    ("Job", "`workload` of type cron that is suspended: run it on demand"),
    ("Secret", "`secret`: docker for registries, userpass for basic-auth, tls if only an Ingress uses it, "
               "else dictionary"),
    ("ConfigMap", "`secret` of type dictionary, with the name NAME-config if a Secret has the name"),
    ("PersistentVolumeClaim, volumeClaimTemplates", "`volumeset`, in whole GB and at least 10; it begins empty"),
    ("Ingress", "`domain` for each host, with routes by path"),
    ("Service", "ports, protocols and the firewall of the workloads that it selects"),
    ("HorizontalPodAutoscaler", "the scale of the workload, by cpu"),
    ("ServiceAccount", "cloud access of the identity (EKS, GKE); a warning lists its pull secrets, to link from the "
                       "GVC; another warning lists missing ServiceAccounts"),
    ("PersistentVolume, StorageClass", "capacity, performance class and file system of volume sets"),
)  # fmt: skip

FIELDS = (
    ("namespace", "the GVC; `--gvc` names one for all"),
    ("labels", "tags; a warning lists labels that only pods, Services, autoscalers and ServiceAccounts have"),
    ("replicas", "`autoscaling` with this minimum and maximum; 0 becomes `suspend`"),
    ("strategy, updateStrategy, minReadySeconds", "`rolloutOptions`; Recreate replaces all at once"),
    ("podManagementPolicy", "`rolloutOptions.scalingPolicy` of a stateful workload"),
    ("securityContext: fsGroup, runAsUser", "`securityOptions`"),
    ("image", "the same; a name without a registry gets that of Docker, `docker.io`"),
    ("command, args", "the first part of the command is `command`, the rest `args`"),
    ("env, envFrom", "`env`; values from a Secret or ConfigMap become `platform://secret/NAME.KEY`"),
    ("ports", "`ports`; the protocol is that of `--protocol`, else of appProtocol, of the port's name, of the probe, "
              "of the number, else tcp"),
    ("resources", "`cpu` and `memory`: limits, else requests, rounded up"),
    ("readinessProbe, livenessProbe", "the same, within the platform's bounds"),
    ("lifecycle", "`lifecycle`, commands only"),
    ("volumes of Secrets and ConfigMaps", "`platform://secret/NAME`, or one mount for each selected key"),
    ("emptyDir", "`scratch://NAME`"),
    ("schedule, timeZone", "`job.schedule`, in UTC and the words of cron; a warning for a time zone and for `@every`"),
    ("annotations prometheus.io/…", "`metrics` of the first container"),
)  # fmt: skip

AROUND = """\

A workload that reads secrets gets an identity, and a policy that lets it reveal only these. Its GVC can reach it if a
Service selects it, and any address can if a Service of type LoadBalancer or an Ingress does. Unlike in Kubernetes, it
reaches outside addresses only if `firewallConfig.external` lists them.

Names that the platform refuses are changed, always in the same way. A warning names each kind and field that is not in
these tables, with its place.
"""


def page() -> str:
    """The text of the page."""
    parts = [
        HEAD,
        table(("Kubernetes", "Here"), KINDS),
        "\n",
        table(("Field", "Here"), FIELDS),
        AROUND,
        "\n## Kinds without a counterpart\n\nLeft out with a warning, as is any kind that is not listed.\n\n",
        table(("Kind", "Instead"), sorted(convert.INSTEAD.items())),
        "\n## Fields without a counterpart\n\nLeft out with a warning, as is any field that is not listed.\n\n",
        table(
            ("Field", "Instead"), ((f"`{name}`", instead) for name, instead in sorted(unused_fields.INSTEAD.items()))
        ),
        "\n## Fields left out without a warning\n\nWith these values they match the behaviour of the platform.\n\n",
        table(("Field", "Values"), ((f"`{name}`", _values(name)) for name in sorted(unused_fields.SAME_HERE))),
        "\nThese parts of metadata and status are left out without a warning:\n\n",
        table(("Part", "Content"), _metadata()),
        *_kamal(),
        *_quadlets(),
        "\n## Findings\n\n",
        table(
            ("Rule", "Severity", "What", "Why"),
            ((f"`{rule.id}`", str(rule.severity), rule.what, rule.why) for rule in RULEBOOK.values()),
        ),
    ]
    return "".join(parts)


KAMAL = """
## Compose

The compose files of a directory are one project: `compose.yaml`, and over it `compose.override.yaml`; other compose
files beside them count only if they are named. The file `.env` and the variables of the caller fill in what the files
leave open, and `COMPOSE_PROFILES` selects profiles. [The page on `platform`](platform-command.md#stack) lists what
becomes of each field.

## Kamal

Each role and accessory of `deploy.yml` becomes a workload: SERVICE for the primary role, SERVICE-NAME for the others,
at which they reach each other, as in Kamal. The GVC is that of `--gvc`, else the service. A value that Ruby makes is
left out with a remark.

`--destination NAME` reads `deploy.NAME.yml` too and merges it as Kamal does: fields into fields, while a list or a text
replaces the one before. The GVC is then SERVICE-NAME unless `--gvc` names one.

The secrets of `env.secret` are keys of one secret, SERVICE-secrets or SERVICE-NAME-secrets, which you create. Of
`.kamal/secrets-common` and `.kamal/secrets` (`.kamal/secrets.NAME` with a destination), only the names are read: a name
that is in neither gets a remark. No command in them is run, and no value is written or shown.

Files are read only below the directory of the project, unless `--allow-outside` is set. A `config/deploy.yml` is in the
project above `config`.

"""

QUADLETS = """
## Quadlets

Each `.container` becomes a workload with the name of its container, and the containers of a `.pod` become one workload.
A `.volume` becomes a volume set, and a secret of Podman is an opaque secret that you create. The GVC is that of
`--gvc`, else `default`. A specifier such as `%h` stays as it is written, with a remark.

Drop-ins (`NAME.container.d/*.conf`, `NAME-.container.d`, `container.d`) are read beside a unit and count as for
systemd: in the order of their names, the nearest directory first, and an empty assignment clears a list. A `.timer`
makes its container a cron workload. `OnCalendar` becomes its schedule in UTC, where cron has an equal; several lines
become one where that is possible. Without an equal, the workload runs on demand, and a remark is at the line.

Files that a unit names beside it (`EnvironmentFile=`, mounts of `./FILE`) become secrets. Files elsewhere are read with
`--allow-outside` only.

"""


def _kamal() -> Iterator[str]:
    yield KAMAL
    yield table(("Field", "Here"), ((f"`{name}`", here) for name, here in sorted(kamal.CARRIED.items())))
    yield "\nLeft out with a remark, as is any field that is in no table:\n\n"
    yield table(("Field", "Instead"), ((f"`{name}`", instead) for name, instead in sorted(kamal.LEFT_OUT.items())))
    yield f"\nLeft out without a remark, as they concern the program kamal alone: {_quoted(kamal.SAME_HERE)}, `x-…`.\n"


def _quadlets() -> Iterator[str]:
    yield QUADLETS
    yield table(("Section and key", "Here"), ((f"`{name}`", here) for name, here in sorted(quadlet.CARRIED.items())))
    yield "\nKeys of `[Container]` and `[Pod]` that are left out with a remark, as is any key that is in no table:\n\n"
    yield table(("Key", "Instead"), ((f"`{name}`", instead) for name, instead in sorted(quadlet.LEFT_OUT.items())))
    yield "\nKeys of other sections that are left out with a remark:\n\n"
    yield table(("Section", "Instead"), ((f"`{name}`", instead) for name, instead in sorted(quadlet.OTHERS.items())))
    yield f"\nLeft out without a remark: all of `[Install]` and of `X-` sections, {_quoted(quadlet.SAME_HERE)}.\n"


def _metadata() -> Iterator[tuple[str, str]]:
    """Metadata that a cluster writes, or that connects resources."""
    yield "`status`", "all of it"
    yield (
        "`metadata`",
        _quoted(unused_fields.BOOKKEEPING - {"name", "namespace"}) + "; of a template name and namespace",
    )
    yield "labels that begin with", _quoted(unused_fields.QUIET_LABELS)
    yield "labels of pods", "those in selectors of the workload or a Service, and those that the workload has too"
    yield "labels of a Service, an autoscaler or a ServiceAccount", "those that a workload of its namespace has too"
    yield "annotations that begin with", _quoted(unused_fields.QUIET_ANNOTATIONS)
    yield "`readOnly` of mounts", "`false`; `true` for a mounted Secret or ConfigMap"
    yield "`optional`", "`true` if its target is among the files"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _values(name: str) -> str:
    accepted = unused_fields.SAME_HERE[name]
    if unused_fields.ANY in accepted:
        return unused_fields.ANY
    numbers = [value for value in accepted if isinstance(value, int) and not isinstance(value, bool)]
    if len(numbers) > 2:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join("`" + str(value).lower() + "`" if isinstance(value, bool) else f"`{value}`" for value in accepted)
