"""docs/manifests.md: every kind with its fields."""

from __future__ import annotations

import json
from collections.abc import Iterator

from docs.generate.tables import default, fields, table
from reconciler.documents.limits import LIMITS
from reconciler.documents.schema.fields import Schema, describe_meaning, describe_values
from reconciler.documents.schema.loader import KIND_NAMES, load_schema
from reconciler.manifests.rule_check import MOST_FAULTS
from reconciler.model.key import GVC_SCOPED

HEAD = f"""\
# Manifests

Every kind with its fields, and how the reconciler reads manifests. [docs/platform](platform/fields.md) describes their
effect on the platform.

A GVC with a workload in it:

```yaml
kind: gvc
name: blog
spec:
  staticPlacement:
    locationLinks: [//location/aws-us-west-2]
---
kind: workload
name: web
gvc: blog            # optional if the directory has a GVC
spec:
  type: serverless
  containers:
    - name: web
      image: nginx:1.27  # of Docker Hub; it listens on 80
      ports: [{{number: 80, protocol: http}}]
      readinessProbe: {{httpGet: {{path: /}}}}
  defaultOptions:
    autoscaling: {{minScale: 1, maxScale: 4}}
```

## Files

One YAML mapping is one resource. A file may contain several, separated by `---`. All files below the source's path that
end in `.yaml` or `.yml` are read, and those in [JSON](#json), except in directories that begin with a dot, and those
listed in `.reconcilerignore`, which has the syntax of a `.gitignore`. A symbolic link or a submodule instead of a
manifest is refused, and so is a path that is not printable UTF-8.

## Settings in the repository

A file `.reconciler.yaml` at the root of the repository, or at the source's path there, says what its manifests are for:

```
org: acme
gvc: shop                         # of workloads, identities and volume sets that name none
external: ["//agent/office"]      # exists, and is not declared here
```

So `validate`, `diff`, `up` and the check before a commit need no settings and no options. Options and the settings of
the operator count before it: their `org`, and the `gvc` of the source. A [notice](rules.md#repository-setting-unused)
says what does not count. `plan --dir` and the daemon read it too, and a change of it reads all manifests again.

It is input like a manifest, and gives no access to anything. A link in `external` counts for the links of this
repository, while no source declares its target; it lets nothing be removed that others need. Only links to resources of
the org are allowed; other orgs are for `external` in the settings. Every fault of the file is a finding with its line,
and refuses the revision. Its [schema](schemas.md) is `repository.json`.

## YAML

The reader is strict, so that a manifest means the same to every tool. It refuses plain values that YAML 1.1 and 1.2
read differently (`no`, `017`, `12:30`), keys that are not text, tags beyond the core schema, encodings other than
UTF-8, infinite numbers and those beyond 64 bits, aliases that contain themselves, and templates.

A comment `# reconciler: ignore RULE reason` silences a warning; [Rules](rules.md) has more on it.

## JSON

A file that ends in `.json` is a manifest if it is an object with `kind`, one of the platform's kinds, and `name`, or a
list with such an object; `platform get KIND NAME -o json` prints one. Each item of the list is a resource, as a
document between `---` is in YAML. All rules and limits are the same, and so are the commands, the API and encryption by
`sops`.

    [
      {{"kind": "group", "name": "admins"}},
      {{"kind": "group", "name": "users"}}
    ]

The content decides. Any other file in JSON, such as `package.json`, a dashboard or one with comments, is passed over:
it costs one search, and is no finding. So are symbolic links, files above {LIMITS.file_bytes >> 20} MiB, and those
whose kind is misspelled. Only a file that declared resources before must declare some still, or be deleted
(`json-manifest`).

A manifest in JSON is JSON as RFC 8259 has it. Comments, a comma after the last member, a key that occurs twice, `NaN`
and a byte order mark are errors with their place. There are no comments, so none silences a warning. A change by the
API or a command changes only the lines of its values; indentation and the order of fields stay. A new resource gets a
file in YAML. `reconciler secret` encrypts and edits YAML only; for JSON use `sops` itself.

## Limits

| What | At most |
| --- | --- |
| a file | {LIMITS.file_bytes >> 20} MiB, {LIMITS.documents:,} documents, 1,000 times `%TAG`, {MOST_FAULTS} faults |
| a document | {LIMITS.document_bytes >> 20} MiB, {LIMITS.aliases:,} aliases, {LIMITS.depth} levels |
| values of a document, each alias counted with its content | {LIMITS.nodes:,} |
| values of a file | {LIMITS.file_nodes:,}, and {LIMITS.document_share:,} more for each document |

## One declaration

A resource is declared once: in one file of one source. A second declaration is an error, because both would be applied
in turn, and each would undo the other.

## Which GVC

Workloads, identities and volume sets belong to the GVC that they name in `gvc`; otherwise to the GVC with a manifest in
the same directory, or in the nearest directory above. If that directory has two GVCs, the choice is ambiguous: an
error.

## Links

Links name other resources. `//secret/db` is a resource of the org, `//identity/api` one of the same GVC,
`//gvc/ops/workload/report` one of another GVC, and `/org/acme/secret/db` the long form of the first. The target of a
link must be in Git, recorded, or listed under `external` in the settings or in
[`.reconciler.yaml`](#settings-in-the-repository).

## Order

A resource is applied after those that it links to, and after those in its tag `reconciler/depends-on`. Deletes have
the reverse order. Resources that depend on each other in a circle are refused.

A workload whose name a commit changes, and nothing else, is deleted when the workload of the new name is healthy:
until then both run. If that never happens, the old one stays, and its status says `DependencyNotHealthy`. This needs a
healthy old one without volume sets; volumes go from the old workload to the new one first.

## Tags

These tags have an effect, on any resource:

| Tag | What it does |
| --- | --- |
| `reconciler/depends-on` | Keys or links, separated by commas. The resource waits until these are healthy. |
| `reconciler/prune: disabled` | The resource stays when it is no longer in Git. |
| `reconciler/ignore` | Fields, separated by commas, whose differences at the locations are not drift. |
| `reconciler/allow-replace: "true"` | Fixed fields change by a delete and a create, after an approval. |
| `reconciler/adopt: "true"` | On a cluster: objects of the same names that others made become those of this resource, \
see [clusters](kubernetes.md#objects-of-others). Without it they are refused. |
| `reconciler/no-wake` | Requests that start and keep no replica of a workload that scales to zero, separated by \
commas: paths (`/healthz`), prefixes of paths (`/internal/*`), and parts of user agents (`UptimeRobot`). |
| `reconciler/snapshot-on: new-version` | On a stateful workload: a snapshot of its volumes is taken before each new \
version, see [volume sets](platform/volumeset.md#snapshots-before-a-release). |
| `reconciler/verify-snapshot`, `reconciler/verify-schedule` | On a stateful workload: a command that checks a copy of \
a snapshot of its volume, and when, see [volume sets](platform/volumeset.md#proven-snapshots). |
| `reconciler/pre-snapshot`, `reconciler/post-snapshot` | On a stateful workload: a command in its container before \
and after each snapshot of a volume, see [volume sets](platform/volumeset.md#hooks-around-a-snapshot). |
| `platform/protected: "true"` | The resource is neither deleted nor replaced. |

## Normal form

Manifests are compared in a normal form: defaults are filled in, links have their long form, and lists without a
meaningful order are sorted. A second equal entry in such a list is a warning.

## What a change costs

The last column of the tables below names a class:

| Class | What happens |
| --- | --- |
| in-place | The resource is updated; replicas are not touched. |
| scale-only | The number of replicas changes; the version stays. |
| new-version | The version increases by one, and a rollout replaces the replicas. |
| replace | The field cannot change: the revision is refused, unless the resource has `reconciler/allow-replace`. |

`[]` means the entries of a list, `.*` the values of a mapping with keys of your choice. An omitted field has its
default, and a written default changes nothing.
"""


def page() -> str:
    """The text of the page."""
    parts = [HEAD, *(_kind(name) for name in KIND_NAMES), UNMODELLED + table(COLUMNS, _unmodelled_rows())]
    return "\n".join(parts)


UNMODELLED = """\
## Fields without effect here

The platform has these fields and values, and nothing here does what they ask. A value of the fourth column changes
nothing on the platform either: it is a notice (`field-inert`), any other is a warning (`field-not-enforced`). A value
of the second column is a regular expression.
[Fields](platform/fields.md#fields-without-effect) has more. *Public since* is the month in which public tools or
templates of the platform first have the field; the platform itself may be older.

"""
COLUMNS = ("Kind", "Field or value", "What the platform does", "No effect there either", "Public since")


def _unmodelled_rows() -> Iterator[tuple[str, ...]]:
    """One row for each field and value that has no effect here; fields that several kinds share stand in each."""
    for name in KIND_NAMES:
        for field in fields(load_schema(name)):
            schema, since = field.schema, field.schema.get("x-since", "")
            inert = ", ".join(f"`{json.dumps(value)}`" for value in schema.get("x-inert", ()))
            if "x-unmodelled" in schema:
                yield name, f"`{field.path}`", f"It {schema['x-unmodelled']}.", inert, since
            for value, does in schema.get("x-unmodelled-values", {}).items():
                yield name, f"`{value}` of `{field.path}`", f"It {does}.", "", since


HOST = """
### Secrets on the host

A value on the reconciler's host is written as `{file: PATH}`, a file below `secrets.directory` of the
[settings](settings.md), or as `{credential: NAME}`, a credential of systemd (`LoadCredential=`). With several sources,
each may name only files below its own `sources[].secrets.directory`, and only the credentials in
`sources[].secrets.credentials`. The file must belong to root or the reconciler's user, and no user except these and the
members of the reconciler's group may read it. The line break of a single line is removed. The file is read each time
the secret is checked.

### Encrypted secrets

A document with a mapping `sops` was encrypted with [SOPS](https://getsops.io) for age recipients. It is decrypted
in memory, with the identity in the settings, before it is checked. Only secrets may have encrypted values.
`reconciler secret` writes such files, and by default encrypts only the values below `data`.
"""


def _kind(name: str) -> str:
    schema = load_schema(name)
    scope = "Belongs to a GVC." if name in GVC_SCOPED else "Belongs to the org."
    both = list(_together(schema))
    rows = (
        (f"`{field.path}`", describe_meaning(field.schema), describe_values(field.schema), default(field), field.change)
        for field in fields(schema)
    )
    text = f"## {name}\n\n{schema['description']} {scope}{''.join(both)}\n\n"
    text += table(("Field", "What it is", "Takes", "Default", "Change"), rows)
    return text + "".join(_by_type(schema)) + (HOST if name == "secret" else "")


def _together(schema: Schema) -> Iterator[str]:
    choice = describe_values({**schema, "type": "object"}).partition("; ")[2]
    if choice:
        yield f" Takes {choice}."


def _by_type(schema: Schema) -> Iterator[str]:
    """Shapes of ``data`` that another field decides: the type of a secret, the provider of a cloud account."""
    for part in schema.get("allOf", ()):
        ((decides, word),) = ((name, asked["const"]) for name, asked in part["if"]["properties"].items())
        shape = part["then"]["properties"]["data"]
        if "description" not in shape:
            yield f"\n`data` with {decides} `{word}`: {', '.join(f'`{name}`' for name in shape['required'])}.\n"
            continue
        yield f"\n`data` of type `{word}`: {shape['description']}"
        rows = [
            (
                f"`{field.path.removeprefix('.')}`",
                describe_meaning(field.schema),
                describe_values(field.schema),
                default(field),
            )
            for field in fields(shape)
        ]
        yield (
            f"\n\n{table(('Field', 'What it is', 'Takes', 'Default'), rows)}"
            if rows
            else f" Takes {describe_values(shape)}.\n"
        )
