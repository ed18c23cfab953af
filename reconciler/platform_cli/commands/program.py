"""What concerns the command itself and the API as a whole: completion, single requests, and who one is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from click.shell_completion import get_completion_class

from reconciler.errors import RefusedError, UsageError
from reconciler.platform_cli.command_line import COMPLETE_VARIABLE, make_program
from reconciler.platform_cli.documents import read_value
from reconciler.platform_cli.output import make_field_getter
from reconciler.platform_cli.session import Session

SHELLS = {
    "bash": "{data}/bash-completion/completions/platform",
    "zsh": "{data}/zsh/site-functions/_platform",
    "fish": "{config}/fish/completions/platform.fish",
}
"""Shell → where it finds the script of completion."""


def install_completion(session: Session, shell: str | None, print_: bool | None) -> None:
    """Write the script of completion where the shell of this user finds it."""
    name = shell or os.path.basename(session.environ.get("SHELL", ""))
    if name not in SHELLS:
        raise UsageError(f"name the shell: --shell {', '.join(SHELLS)}")
    script = _completion_script(name)
    if print_:
        session.output.text(script)
        return
    home = session.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    path = Path(SHELLS[name].format(data=home, config=session.profiles_file.parent.parent))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    session.output.line(f"{path} is written; a new {name} has completion")
    if name == "zsh":
        session.output.note(f"~/.zshrc must have, before compinit: fpath=({path.parent} $fpath)")


def rest(session: Session, method: str, path: str, file: str | None = None) -> None:
    """Send one request, and print the body of the answer."""
    body = read_value(file) if file else None
    answer = session.client.request(method, path if path.startswith("/") else f"/{path}", body=body)
    if answer.body is not None:
        session.output.value(answer.body)


def whoami(session: Session) -> None:
    """Show the principal of this credential, and its groups."""
    principal: dict[str, Any] = session.client.get("/whoami")
    session.output.value(principal)


def get_accounts(session: Session, ref: tuple[str, ...]) -> None:
    """List the one account that a daemon has: its org."""
    org: dict[str, Any] = session.client.get(session.path("org"))
    if others := [text for text in ref if text != org["name"]]:
        raise RefusedError(f"there is no account {others[0]!r}; this daemon serves the org {org['name']}")
    account = {**org, "kind": "account"}
    columns = {"NAME": make_field_getter("name"), "DESCRIPTION": make_field_getter("description")}
    session.output.documents([[account]], columns, "account")


def _completion_script(shell: str) -> str:
    """The script that lets ``shell`` ask this command."""
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    return completion_class(make_program(), {}, "platform", COMPLETE_VARIABLE).source()
