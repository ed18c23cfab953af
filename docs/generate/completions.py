"""What bash, zsh and fish need to complete the words of `reconciler` and `platform`.

``python -m docs.generate.completions DIR`` writes it below ``DIR``, which stands for /usr/share.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from reconciler.cli import cli
from reconciler.platform_cli.command_line import COMPLETE_VARIABLE, make_program

PLACES = {
    "bash": "bash-completion/completions/{name}",
    "zsh": "zsh/vendor-completions/_{name}",
    "fish": "fish/vendor_completions.d/{name}.fish",
}
"""Shell → where Debian's package of it looks for a command, below /usr/share."""


def make_completions() -> dict[str, str]:
    """Path below /usr/share → script, for both commands and each shell."""
    scripts: dict[str, str] = {}
    programs: dict[str, click.Command] = {"reconciler": cli, "platform": make_program()}
    variables = {"reconciler": "_RECONCILER_COMPLETE", "platform": COMPLETE_VARIABLE}
    for shell, place in PLACES.items():
        completion = get_completion_class(shell)
        assert completion is not None
        for name, program in programs.items():
            scripts[place.format(name=name)] = completion(program, {}, name, variables[name]).source()
    return scripts


def main() -> None:
    """Write every script below the directory that the command line names."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m docs.generate.completions DIR")
    for name, text in make_completions().items():
        path = Path(sys.argv[1], name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
