"""docs/platform-command.md: every command of `platform`, from its table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from docs.generate.tables import table
from reconciler.convert.compose import fields
from reconciler.platform_cli.command_line import all_rows
from reconciler.platform_cli.table.kinds import KINDS
from reconciler.platform_cli.table.operator_rows import OPERATOR_ROWS
from reconciler.platform_cli.table.program_rows import WORD_ALIASES
from reconciler.platform_cli.table.row import COMMON, LISTING, Option, Row

HEAD = """\
# The platform command

`platform` speaks only the [HTTP API](http.md): it works on any machine that reaches the daemon, and needs no file of
it. [The command line of the platform](platform/cli.md) describes the words that it takes over.

```sh
platform login --endpoint https://reconciler.example.com --org acme
platform profile update default --gvc shop
platform workload get
platform apply -f manifests/ --ready
```

A change by `platform` is a commit on the branch that its source follows. A branch that is checked out in a work tree
takes none, since its files would not follow: let the source name a bare repository (`git clone --bare`), to which
people push, or set [`api: {writes: branch}`](settings.md). Then each change is a branch of its own, which you merge; so
it is with a directory that `reconciler up` runs.

On the host of the daemon, `platform` finds its socket by itself: of the settings that `$RECONCILER_SETTINGS` names, of
what `reconciler up` runs in the directory, or of the service. Root needs no login there, and the org is that of the
daemon. Elsewhere, `login` opens a
browser; `login --device` shows a code for the browser of another machine; `login --token-stdin` reads the key of a
service account. Where the settings have no `api.oidc`, there is no browser login: the first administrator has the
token that the daemon wrote, `platform login --bootstrap --token-stdin < STATE/bootstrap-token`, for an hour, and adds
keys of service accounts with it. Profiles are in `platform/profiles.json` below `XDG_CONFIG_HOME` (`~/.config`),
readable by their user alone. On a desktop with a keyring and `secret-tool` (of libsecret), that has the tokens;
`login --no-keyring` leaves them in the file. A flag wins over its environment variable (`PLATFORM_PROFILE`,
`PLATFORM_ORG`, `PLATFORM_GVC`,
`PLATFORM_TOKEN`, `PLATFORM_ENDPOINT`), and that over the profile. Tokens of a login are renewed by themselves.

What operators do works from anywhere: `platform plan`, `approve`, `status`, `events`, `history`, `top`, `drift`,
`snapshots`, `describe`, `suspend`, `resume`, `rollback`, `sync`, `retry` and `hold` take the words of
[the commands on the host](commands.md); `rollback --with-data` is there alone. Messages of the daemon name them as they
are called here; one that only its host has comes with that place. Single values need no editor:

```sh
platform workload env set web LOG_LEVEL=debug COLOR=red
platform secret set db password -
platform scale web 3
platform restart web
platform logs web --follow
```

They change these values alone: what others add meanwhile stays. `scale` sets the least and the most replicas at each
location, and `restart` is a forced redeployment. `secret set` creates a dictionary if the secret is new.

`apply` prints its commit and the digest of its plan; a delete is silent to programs. Deletes beyond the budget, and
those of volumes, wait: the command names them and what releases them. A document that fails names its file and line,
each fault its own, and the others are carried out. While the daemon restarts, a connection is tried for 3 seconds, and
a read is repeated for 10; a change only with its `Idempotency-Key`.

Values of secrets come from files or standard input. `--entry` and `--token` also take them from the command line, where
other users of the machine and the history of the shell have them. `--debug` hides them, and credentials. `HTTPS_PROXY`,
`HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` hold; a proxy is reached by HTTP, and one of SOCKS is refused.

Exit codes: 0 success; 1 refused or failed; 2 the command line is wrong; 130 interrupted. Results go to standard output,
everything else to standard error; with `-o json`, an error is the object `error` with `message`, `status` of the
server, and `findings`. Formats other than text show all records unless `--max` is given. There are no colours with
`NO_COLOR`, with `--no-color`, and without a terminal.

`workload exec REF -- COMMAND` and `workload connect REF` exit with the code of the program: 128 and the signal that
ended it; 126 if it may not run, 127 if there is none; 125 if the connection was cut, or nothing could be started. On a
terminal, every key goes to the program, also Ctrl-C. Without one, `exec` reads standard input only with `-i`, so a loop
over lines of a file keeps its lines.

`workload cron start REF --wait` ends as the executions do, with 1 if one failed or goes on after `--timeout`. The last
lines of their logs are on standard error if you may read them.

`agent manifest` prints a namespace, the bootstrap file as a secret, and a deployment for a cluster; `agent up` runs a
container with Docker or Podman. The image is yours: none is published. It finds its bootstrap file at the path in
`BOOTSTRAP_FILE`, and reports to `-info` of its link.

`docker-credential-platform` keeps logins to registries for Docker and Podman, in `platform/registries.json` beside the
profiles. To use it, add `"credHelpers": {"registry.example.com": "platform"}` to `~/.docker/config.json`, or to
`auth.json` of Podman, and log in: `docker login registry.example.com`.

A reference is a name, a link such as `/org/acme/gvc/shop` or `//workload/web`, or a key such as `workload/shop/web`,
whose kind can be a plural or short name (`wl/web`). Where one reference is taken, `KIND NAME` is one, too.
What is in a GVC, and names none, is in that of the call. `<>` is required, `[]` optional, and `...` allows several.
`get` with an empty one lists all; other commands refuse it.

"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(_sections())


def _sections() -> Iterator[str]:
    yield "## Options of every command\n\n"
    yield _options(COMMON)
    rows = all_rows()
    yield "\n## Options of lists\n\nWhat lists something has these, too: its row names them *list*.\n\n"
    yield _options(LISTING)
    yield "\n## For operators\n\n"
    yield table(("Command", "What it does", "Options"), map(_cells, OPERATOR_ROWS))
    words = sorted({row.words[0] for row in rows} - {row.words[0] for row in OPERATOR_ROWS})
    for word in words:
        aliases = KINDS[word].aliases if word in KINDS else WORD_ALIASES.get(word, ())
        alias = f" (alias {', '.join(f'`{each}`' for each in aliases)})" if aliases else ""
        yield f"\n## {word}\n\n"
        if alias:
            yield f"`{word}`{alias}\n\n"
        yield table(("Command", "What it does", "Options"), [_cells(row) for row in rows if row.words[0] == word])
        if word == "stack":
            yield from _compose()


COMPOSE = """
A compose project becomes a GVC, workloads, secrets and volume sets. `stack` reads the files as `docker compose` does,
with variables, profiles, `include` and `extends`. A remark names file, line and key of everything that has no
counterpart. The GVC is that of `--gvc` or the profile, else the name of the project; it must exist unless `--location`
creates it. A service that another one waits for until it ends becomes a cron workload, to be run on demand; so does one
with `restart: "no"` that has no port and no health check, and that no service depends on. Volume sets stay when a stack
is deleted, unless `--volumes`.

The files that a project names (`secrets`, `configs`, `env_file`, `extends`, `include`, mounts) become a part of the
manifests. So they are read only below the directory of the first compose file, by their resolved paths: a compose file
of somebody else gets no file of yours. `--allow-outside` reads them wherever they are. What you name yourself, with
`--file`, `--env-file` or `COMPOSE_FILE`, may be anywhere. A project becomes at most 200,000 values and 16 MiB of text.

"""


class Difference(NamedTuple):
    """A text with a variable, what Compose makes of it, and what `stack` does."""

    text: str
    compose: str
    here: str


DIFFERENCES = (
    Difference(
        "not ok ${UNSET_VAR:?Mandatory Variable ${FOO}}",
        "the error has the value of `FOO`",
        "the error has `${FOO}`: a value may be a secret",
    ),
    Difference(
        "not ok ${UNSET_VAR?Mandatory Variable ${FOO}}",
        "the error has the value of `FOO`",
        "the error has `${FOO}`: a value may be a secret",
    ),
)
"""Texts of compose-go's own tests that are read in another way."""

VARIABLES = """
Variables are replaced as Compose does it: a dollar sign before no name, as in `^REGEX$` or `$(date)`, stays, and `$$`
is one before a name; `${`, `${}`, `${ x}` and `${x!}` are errors. In the tests of compose-go, these differ:

"""


def _compose() -> Iterator[str]:
    """What becomes of compose files, from the tables of their reader."""
    yield COMPOSE.rstrip("\n") + "\n" + VARIABLES
    yield table(("Text", "Compose", "Here"), [(f"`{each.text}`", each.compose, each.here) for each in DIFFERENCES])
    yield "\n"
    yield table(("Field of a compose file", "Here"), [(f"`{name}`", text) for name, text in fields.CARRIED.items()])
    yield "\nThese fields are left out with a remark, as is any field that is in no table.\n\n"
    yield table(("Field", "Instead"), [(f"`{name}`", text) for name, text in fields.LEFT_OUT.items()])
    yield "\nWith these values, a field is left out without a remark, since the platform does the same.\n\n"
    yield table(("Field", "Values"), [(f"`{name}`", _values(accepted)) for name, accepted in fields.SAME_HERE.items()])


def _values(accepted: Iterable[object]) -> str:
    words = [each if each == fields.ANY else f"`{str(each).lower()}`" for each in accepted]
    return ", ".join(map(str, words))


def _cells(row: Row) -> tuple[str, str, str]:
    names = [" ".join((*row.words[:-1], each)) for each in (row.words[-1], *row.aliases)]
    command = ", ".join(f"`{' '.join(filter(None, (each, row.argument)))}`" for each in names)
    if row.instead:
        return command, f"Not available: {row.instead}.", ""
    return command, row.own_help, ", ".join([*map(_shown, row.options), *(["*list*"] if row.lists else [])])


def _shown(option: Option) -> str:
    names = ", ".join(f"`{each}`" for each in (*option.also, *option.names.split("/")))
    marks = [mark for mark, found in (("required", option.required), ("repeatable", option.multiple)) if found]
    return names + (f" ({', '.join(marks)})" if marks else "")


def _options(options: Iterable[Option]) -> str:
    rows = [
        (", ".join(f"`{each}`" for each in (*option.also, *option.names.split("/"))),
         ", ".join(f"`{each}`" for each in (*option.choices, *option.more_choices))
         or option.metavar or "boolean", option.help)
        for option in options
    ]  # fmt: skip
    return table(("Option", "Value", "What it is"), rows)
