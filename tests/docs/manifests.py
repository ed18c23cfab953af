"""docs/manifests.md: every kind with its fields."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.documents.schema.loader import KIND_NAMES, load_schema
from reconciler.model.key import GVC_SCOPED
from tests.docs.tables import Schema, default, fields, says, table, takes

HEAD = """\
# Manifests

One YAML mapping is one resource. A file holds as many as you like, set apart by `---`; files ending in `.yaml` or
`.yml` are read, wherever they lie below the source's path, but for directories that begin with a dot and what
`.reconcilerignore` names (it is written like a `.gitignore`).

**Which GVC.** Workloads, identities and volume sets belong to a GVC: the one they name in `gvc`, else the one whose
manifest lies in the same directory, or in the nearest directory above that has one. A directory with two GVCs
leaves the choice open, and that is an error.

**Links** name other resources. `//secret/db` is one of the org, `//identity/api` one of the GVC at hand,
`//gvc/ops/workload/report` one of another GVC, and `/org/acme/secret/db` the long form of the first. A link must
lead to something that is in Git, recorded, or listed under `external` in the settings.

**Tags** of ours, on any resource:

| Tag | What it does |
| --- | --- |
| `reconciler/depends-on` | Keys or links, set apart by commas. The resource is touched only once those are healthy. |
| `reconciler/prune: disabled` | The resource stays when it is gone from Git. |
| `reconciler/ignore` | Fields, set apart by commas, that may differ at the locations: that is no drift. |
| `reconciler/allow-replace: "true"` | A field that cannot change may: it is deleted and made anew, once approved. |
| `platform/protected: "true"` | The resource is neither deleted nor replaced. |

**What a change costs** stands in the last column:

| Class | What happens |
| --- | --- |
| in-place | The resource is updated; replicas are not touched. |
| scale-only | The number of replicas follows; the version stays. |
| new-version | The version goes up by one, and replicas are rolled over to it. |
| replace | The field cannot change: the revision is refused, unless the resource has `reconciler/allow-replace`. |

In `[]` stand the entries of a list, in `.*` the values of a mapping with keys of your own choice. A field that is
left out has its default, and writing a default out changes nothing.
"""


def page() -> str:
    """The text of the page."""
    parts = [HEAD, *(_kind(name) for name in KIND_NAMES)]
    return "\n".join(parts)


HOST = """
A text that stands on the reconciler's host is written as `{file: PATH}`, a file below `secrets.directory` of the
[settings](settings.md), or as `{credential: NAME}`, which systemd hands over (`LoadCredential=`). Where the settings
have several sources, each may name only files below its own `sources[].secrets.directory`, and only the credentials in
`sources[].secrets.credentials`. The file belongs to
root or the reconciler's user and nobody else can read it, but for the group that the reconciler runs as. Of a single
line the line break is left out. It is read whenever the secret is looked at.

A document with a mapping `sops` was encrypted with [SOPS](https://getsops.io) for age recipients. It is opened in
memory, with the identity that the settings name, before anything else is looked at. Only secrets may have encrypted
values. `reconciler secret` writes such files, by default with all below `data` encrypted and the rest left to read.
"""


def _kind(name: str) -> str:
    schema = load_schema(name)
    scope = "Belongs to a GVC." if name in GVC_SCOPED else "Belongs to the org."
    both = list(_together(schema))
    rows = (
        (f"`{field.path}`", says(field.schema), takes(field.schema), default(field), field.change)
        for field in fields(schema)
    )
    text = f"## {name}\n\n{schema['description']} {scope}{''.join(both)}\n\n"
    text += table(("Field", "What it is", "Takes", "Default", "Change"), rows)
    return text + "".join(_by_type(schema)) + (HOST if name == "secret" else "")


def _together(schema: Schema) -> Iterator[str]:
    choice = takes({**schema, "type": "object"}).partition("; ")[2]
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
        rows = [(f"`{f.path.removeprefix('.')}`", says(f.schema), takes(f.schema), default(f)) for f in fields(shape)]
        yield f"\n\n{table(('Field', 'What it is', 'Takes', 'Default'), rows)}" if rows else f" Takes {takes(shape)}.\n"
