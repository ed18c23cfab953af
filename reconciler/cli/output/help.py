"""Help whose example can be copied: a long one goes on in the next line as a shell reads it."""

from __future__ import annotations

import re

import click

_EXAMPLE = "Example: "
_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")
_NEXT = "    "


class HelpFormatter(click.HelpFormatter):
    """A formatter that breaks an example between words of the shell, never within quotes."""

    def write_text(self, text: str) -> None:
        """Write ``text``, wrapped; of an example, each line but the last ends with a backslash."""
        if not text.startswith(_EXAMPLE):
            super().write_text(text)
            return
        margin = " " * self.current_indent
        for line in wrap_example(text, self.width - self.current_indent):
            self.write(f"{margin}{line}\n")


class HelpContext(click.Context):
    """The context of commands with such help."""

    formatter_class = HelpFormatter


def wrap_example(text: str, width: int) -> list[str]:
    """The lines of ``text``, each of at most ``width`` columns where its words allow that."""
    lines = [""]
    for word in _WORD.findall(text):
        line = f"{lines[-1]} {word}" if lines[-1] else word
        if len(line) > width - 2 and lines[-1]:
            lines += [f"{_NEXT}{word}"]
        else:
            lines[-1] = line
    # A last word that fits alone needs no place for a backslash.
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def use_help_context(command: click.Command) -> click.Command:
    """``command`` with such help."""
    command.context_class = HelpContext
    return command
