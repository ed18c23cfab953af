"""docs/http.md: the HTTP API, from the table that its routes come from."""

from __future__ import annotations

from docs.generate.tables import table
from reconciler.api.app import OPERATIONS
from reconciler.api.problems import CODES
from reconciler.api.table import OVERVIEW, PARAMETERS, PUBLIC
from reconciler.model.key import Kind
from reconciler.model.kinds.table import ALLOWS, MANAGE, TABLE

HEAD = """\
# HTTP API

The daemon serves it if the settings have [`api`](settings.md) or `readers`, in a process of its own: neither its load
nor a fault in it delays the work on commits. It answers at the socket `api.sock` in the state directory, and over TCP
at `api.address`:

```sh
curl --unix-socket /var/lib/reconciler/api.sock http://localhost/org/acme/gvc
```

Who calls over the socket is known by the kernel: root and the user of the daemon are members of the group
`superusers`, and members of the group in the setting `readers` are members of `viewers` who may read logs too. Over
TCP, a request has a credential in the header `Authorization`. What callers may do is decided by the
[policies](platform/fields.md#policy) as applied. A caller without the permission to view a resource gets the same
answer whether it exists or not.

At its first start the API writes a token to `bootstrap-token` in the state directory. `POST /login/bootstrap` with the
body `{"token": …}` exchanges it, once, for a session of a superuser that lasts an hour: long enough to add a key to a
service account. The text of a key is in the answer to that request alone. Wrong credentials make their address and
account wait, longer each time; valid ones, and signed webhooks, are answered meanwhile. More requests of a caller, or
without a valid credential of an address, than [`api.rateLimits`](settings.md) allows are 429 with `Retry-After`. Behind
a proxy, [`api.trustedProxies`](install.md#behind-a-proxy) tells who the client is.

People log in at an OpenID Connect provider, if the settings have [`api.oidc`](settings.md); [Logins](install.md#logins)
shows how to set it up. A command on the machine of the browser opens
`/login?redirect_uri=http://127.0.0.1:PORT/…&code_challenge=…&code_challenge_method=S256&state=…`, gets a `code` at that
address, and sends it with its verifier and the same `redirect_uri` to `POST /login/token`. A machine without a browser
uses the device flow of RFC 8628: `POST /login/device`, then `POST /login/token` every 5 seconds. Either answer has an
`access_token`, a session of 15 minutes, and a `refresh_token` for the next one. A refresh token works once; sent again
later than 30 seconds after, it ends the login, since two clients have it. The login also ends by `DELETE /login`, after
`api.oidc.sessionLasts`, and after `sessionTimeoutSeconds` of the [org](manifests.md) without a request. With
`authConfig.samlOnly: true` in the manifest of the org, logins and the sessions of people are refused.

A CI job exchanges the OIDC token of its CI service for a session of a service account that lasts 15 minutes at most, by
the rules in [`api.tokenExchange`](settings.md): `POST /login/exchange`, with the form of RFC 8693. Signatures, issuer,
audience and times of every token are checked; clocks may differ by a minute. Errors of `/login/token` and
`/login/exchange` have the members `error` and `error_description` of OAuth 2.0 where it defines one.

A workload calls as its identity, with `PLATFORM_TOKEN`, from
[its own processes only](host.md#environment-of-a-container); one without an identity reads its org: `GET /org/ORG`. The
token ends with the workload.

A new [agent](platform/cli.md#agent) gets its registration token in the answer to the request that creates it, with
`agentId`, `agentLink` and `hubEndpoint`: together they are its bootstrap file. `-bootstrap` makes another one, also for
an agent that a manifest declares, and ends the former token. With the token an agent sends what `-info` shows, and may
do nothing else. The token ends with the agent.

Keys, users, sessions and the audit logs are in `access.sqlite` in the state directory. `reconciler backup` copies them,
except for sessions, and `reconciler restore` brings them back where that file is missing: those of a backup would have
keys that were revoked since.

A credential belongs to the life of its account: the keys and sessions of a service account, the logins, invitations and
sessions of a user, and the token of an agent end with it. They stay void if another account gets the name, and a person
who is invited again logs in again. A user whom a manifest declares is gone with the manifest.

A change of a resource becomes a commit. It is made in the file that declares the resource: comments, order and fields
that stay equal remain as they are written. A new resource gets the file `GVC/KIND/NAME.yaml`. The whole tree that would
result is checked before, and a change with findings is refused with them. The author is the caller, and the trailer
`Request-Id` names the request. With [`api.writes`](settings.md), the commit goes to the branch of the source, or to a
new branch for a review. With `api.signingKey` it is signed, as a source with `verify` wants. If others pushed
meanwhile, the change is made again on their commit; if they changed the same field, the answer is 409 with both
versions, `yours` and `theirs`. Changes of a source that wait at the same time share one push. A patch counts from the
newest commit, also from one that is not applied yet. An event `ChangeCommitted` of the resource names the caller and
the commit.

A `PUT` undoes nothing that its client did not see. What the client saw is, in this order,

* the resource with the `ETag` in the header `If-Match`: that of a read, or of the answer to a change. The tag names the
  manifest, so that a changed status is no conflict;
* the revision in `status.revision` of the body, as a read has it;
* what the same caller wrote last, if nobody changed the resource since.

The fields that the client changes are merged into the newest commit; the rest stays as others wrote it. `If-Match: *`
replaces whatever is there. `PATCH` and `DELETE` keep `If-Match` too.

`POST /org/ORG/-apply` makes one change of many: `items` are manifests, which replace what is there, and `delete` are
links. There is one check, one plan, one commit, and with reviews one branch; a fault anywhere holds back all. All of
them belong to one source. The answer has an `action` for each: `created`, `updated`, `unchanged`, `deleted` or
`missing`. With `dryRun=true` it shows the diff and the plan, whose digest is that of the run afterwards: with
`digest=DIGEST`, a change with any other plan is refused. `platform apply`, `delete -f`, `stack deploy` and `diff` use
it. An agent among them gets its token by `-bootstrap`. The audit log names the first of the resources.

In a patch, `$add/FIELD` and `$remove/FIELD` change items of a list, and leave what others add to it:
`{"$add/containers": [{"name": "main", "$add/env": [{"name": "A", "value": "b"}]}]}` below `spec` sets one variable, and
`{"$remove/memberLinks": ["/org/acme/user/ann"]}` removes one member. Objects are found by their name; `$remove` takes
the names. The groups `superusers` and `viewers` exist without a manifest: their first change creates it, and each takes
`manage`.

A new link needs a [permission on its target](platform/fields.md#references), and nobody
[grants](platform/fields.md#policy) more than they have. An answer names only what its caller may view: a finding about
another resource has neither its place nor its name, and a diff has only the documents that the caller may view.

To delete a GVC deletes all in it, which takes `delete` on each member, and `?force=true` if there are volume sets. A
new member of a GVC goes to the source of the GVC. A domain is added once its [TXT record](platform/fields.md#domain) is
there, as the server in `domains.resolver` of the settings answers.

A remote that declines the commit, such as for a protected branch, is 409 with its words, and nothing stays behind. One
that cannot be reached or is too slow is 503. After a push whose connection broke, the remote may still take the commit:
send the request again with the same `Idempotency-Key`. Then the change is made once, however often and whenever the
daemon or the connection ended, and the answer is the first one. A refused request is not remembered.

A forge tells the daemon of a push by `POST /webhook/SOURCE`, if the settings have a webhook for the source under
`api.webhooks`. The signature is checked over the raw body before anything else; the content is not read. Each delivery
counts once. The daemon reads the source at most once a second, however many arrive.

Every change, every login and every refusal is in the audit log: who, by which credential, from where, what, the
request id and the status. Each entry has a hash over itself and the hash before, so that a changed or removed entry
shows: `reconciler doctor` checks it, and names the last hash to compare with an export. With
`Accept: application/x-ndjson`, all entries after the number `after` come as lines of JSON, for an export. A flood of
refusals fills no disk: above 60 of a caller or address within a minute, or 300 of all, an entry describes the last one,
and `count` is their number. Reading it takes `readAudit` on the audit context `platform`.

Who can write the file of the log can compute all its hashes again, so the newest hash also goes where they do not
reach: into the trailer `Audit-Log: NUMBER HASH` of each commit of the [status branch](status.md). `reconciler doctor`
compares, and names the first commit that does not fit the log: an entry up to that one was changed, or the end of the
log was removed. Entries since the newest commit have no such witness yet, and commits of a former history are gone
after 1,000 more. Let the remote refuse to rewrite the branch.

Programs append records of their own to other audit contexts: `POST …/-record` takes an `action`, and the optional
`target`, `outcome` and `details`. The server adds who states it, when and from where, and chains the records of each
context. Writing takes `writeAudit` on the context, reading `readAudit`. Records are never deleted, and the API deletes
no context that has some; a context that a commit removes has them again when it comes back. Deleting a context takes
`manage`, since there is no permission `delete` for this kind.

Answers are JSON. A document has the fields of its manifest in normal form, without the data of secrets, and those of
the server: `id`, `version`, `created`, `lastModified`, `links`, `status`, and `alias` of a GVC. Each answer has an
`ETag`: with `If-None-Match`, an unchanged one is 304 without a body. A body with a field twice is refused, as in a
manifest, and so is a change with
an unknown parameter. Lists come in pages; the link with rel `next` stays valid while resources come and go. A
page of a `-query` looks at 1,000 resources at most, so that it may have fewer items than its limit, or none, and the
link to the next.
`GET /openapi.json` is an OpenAPI 3.1 document of everything below.

A program in a container runs over a WebSocket at `-exec`, with the subprotocol `v5.channel.k8s.io` of Kubernetes. A
message begins with the byte of its channel: 0, 1 and 2 are the streams of the program, 3 is its end as a `Status` with
the exit code, 4 the size of the terminal (`{"Width": 80, "Height": 24}`), and 255 closes the channel of the next byte.
The program ends when the connection does. Read while you send: the program waits until its output is taken.

A watch follows a collection or a resource as server-sent events: `added`, `modified` and `deleted` have the document as
a list shows it, after a deletion its last manifest. To follow a list without a gap, watch from the number in its header
`Resource-Version`: as the header `Last-Event-ID`, or as the parameter `after`; without it, a watch begins now. Several
changes of a resource can be one event. A `bookmark` now and then has the newest id to resume from. The event `problem`
has the body of an error and ends the watch, with 410 if the client reads too slowly or what it may view has changed:
then list again. An id from which not every change is known any more, among the last 20,000, is refused with 410.
"""

OPERATIONS_HEAD = """
## Overviews

What operators see of the whole daemon has the same content as a command: `-status` is `reconciler get`, and so are
`-describe`, `-events`, `-runs` (`history`), `-top`, `-snapshot` and `source/NAME/-plan`. With the header
`Accept: text/plain` they answer with the text that the command prints; `-status` also has `application/yaml`, and a
plan `text/markdown`. `-plan/DIGEST` is the current plan with that digest, or with that digest of the steps that wait:
what an approver decides about. The headers `Plan-Changes` and `Plan-Errors` count steps of a plan, and errors in
its revision or refusals of clusters. They need the permission `view` on everything, as the group `viewers` has it, for
they show all resources.
One caller reads at most four at once, and gets 429 for more. In texts, characters that control a terminal are escaped.

## Operations

"""

PERMISSIONS_HEAD = """
## Permissions

[Policies](platform/fields.md#policy) grant them on resources of a kind. What a permission includes stands in brackets;
`manage` includes all of its kind. `approve` on the org approves plans.

`readLogs` on the org reads all logs, and on workloads theirs alone: a query that selects more is narrowed to them, and
one that names another workload, or a GVC without one of them, is refused in the same way whether it exists or not.

"""

PARAMETERS_HEAD = "\n## Parameters\n\n"

ERRORS = """
## Errors

The body of an error is `{status, message, code, details, id}`. The `details` of a refused change are its findings, as
`reconciler validate --format json` writes them; `field` is the JSON pointer of the value in the manifest. The `id` is
also in the header `X-Request-Id` of every answer, and in the log of the daemon if the fault is its own.

"""


def page() -> str:
    """The text of the page."""
    rows = ((f"`{each.method} {each.path}`", each.summary, _needed(each.permission)) for each in OPERATIONS)
    parameters = ((f"`{name}`", text) for name, text in PARAMETERS.items() if _used(name))
    errors = ((str(status), f"`{code}`") for status, code in CODES.items())
    return (
        HEAD
        + OPERATIONS_HEAD
        + table(("Request", "What it does", "Permission"), rows)
        + PERMISSIONS_HEAD
        + table(("Kind", "Permissions"), ((str(kind), _permissions(kind)) for kind in Kind))
        + "\n"
        + table(("Permission", "What it allows"), ((f"`{name}`", text) for name, text in ALLOWS.items()))
        + PARAMETERS_HEAD
        + table(("Parameter", "What it is"), parameters)
        + ERRORS
        + table(("Status", "Code"), errors)
    )


def _needed(permission: str) -> str:
    if permission == OVERVIEW:
        return "`view` on everything"
    return (
        "none, without a credential"
        if permission == PUBLIC
        else f"`{permission}`"
        if permission
        else "what the answer shows"
    )


def _permissions(kind: Kind) -> str:
    known = TABLE[kind].permissions
    return ", ".join(
        f"`{name}`" + (f" ({', '.join(f'`{each}`' for each in known[name])})" if known[name] and name != MANAGE else "")
        for name in sorted(known)
    )


def _used(name: str) -> bool:
    return any(name in each.parameters for each in OPERATIONS)
