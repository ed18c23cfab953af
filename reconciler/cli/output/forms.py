"""The option ``-o`` of all that reads: one value as text, JSON, YAML, names, or what a JSONPath finds in it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from reconciler.model.lists.naming import format_names
from reconciler.render.style import TextStyle

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from reconciler.model.lists.jsonpath import Template

_Command = TypeVar("_Command", bound=Callable[..., Any])

JSONPATH = "jsonpath"
_TEXTS = ("text", "wide")
_FOREIGN = ("custom-columns", "go-template", "jsonpath-as-json", "jsonpath-file", "templatefile", "template")
"""Forms of kubectl that are not here."""


class Output(NamedTuple):
    """The form of an output; the ``template`` is that of the form jsonpath."""

    form: str = "text"
    template: Template | None = None

    @property
    def is_text(self) -> bool:
        """Whether it is text for people."""
        return self.form in _TEXTS

    @property
    def base(self) -> str:
        """The form that it is made of: JSON for all forms of values, text for both forms of text, else itself."""
        return "text" if self.is_text else "json" if self.form in ("yaml", "name", JSONPATH) else self.form

    def style(self, *, headings: bool = True) -> TextStyle:
        """How text is shown on standard output."""
        from reconciler.terminal.folding import is_colour_terminal

        return TextStyle(is_colour_terminal(sys.stdout), self.form == "wide", headings)


class OutputType(click.ParamType):  # type: ignore[type-arg] # only newer versions of click have the argument
    """The type of ``-o``: the forms of every command, and ``more``; an Output."""

    name = "form"

    def __init__(self, more: Sequence[str] = (), *, has_names: bool = True) -> None:
        self.forms = (*_TEXTS, "json", "yaml", *(["name"] if has_names else []), f"{JSONPATH}=PATH", *more)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Output:
        """``value`` as an Output; raises click's UsageError that names the forms."""
        if isinstance(value, Output):
            return value
        form, separator, words = value.partition("=")
        if form == JSONPATH:
            return Output(JSONPATH, self._parse_template(words, param, ctx))
        if value in self.forms and not separator:
            return Output(value)
        from reconciler.queries.existence import did_you_mean

        there = f"there are {', '.join(self.forms)}"
        if form in _FOREIGN:
            self.fail(f"the form {form!r} is not supported; {there}", param, ctx)
        near = did_you_mean(form, (known.partition("=")[0] for known in self.forms))
        raise click.BadParameter(f"there is no form {value!r}{near}; {there}", ctx, param)

    def _parse_template(self, words: str, param: click.Parameter | None, ctx: click.Context | None) -> Template:
        from reconciler.model.lists.jsonpath import parse_template

        if not words:
            self.fail("write a path after jsonpath=, such as jsonpath='{.items[*].name}'", param, ctx)
        try:
            return parse_template(words)
        except ValueError as error:
            self.fail(f"jsonpath: {error}", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """The forms that begin so."""
        from click.shell_completion import CompletionItem

        forms = (form.removesuffix("PATH") for form in self.forms)
        return [CompletionItem(form) for form in forms if form.startswith(incomplete)]


def output_option(*more: str, has_names: bool = True, has_alias: bool = False) -> Callable[[_Command], _Command]:
    """Add the option ``-o``, passed on as ``output``, an Output; with ``has_alias``, ``--format`` is the same."""
    form = OutputType(more, has_names=has_names)
    words = f"{', '.join(form.forms)}."
    spellings = ("-o", "--output", *(["--format"] if has_alias else []), "output")
    return click.option(*spellings, type=form, metavar="FORM", default="text", help=words)


def print_document(output: Output, document: Any, member: str = "") -> None:
    """Print the JSON value ``document`` in the form of ``output``; ``member`` has the entries that have names."""
    text = format_document(output, document, member)
    click.echo(text, nl=False)
    if not text and output.template is not None:
        reason = output.template.explain_missing(_simplify_value(document))
        click.echo(reason, nl=bool(reason), err=True)


def print_items(output: Output, items: Sequence[Mapping[str, Any]]) -> None:
    """Print the ``items`` of a feed: JSON as one object a line, YAML as entries of one list."""
    import msgspec

    if output.form == "json":
        for item in items:
            click.echo(msgspec.json.encode(item).decode())
    elif output.form == "yaml":
        click.echo(format_document(output, items) if items else "", nl=False)
    else:
        print_document(output, {"items": items}, "items")


def format_document(output: Output, document: Any, member: str = "") -> str:
    """What ``print_document`` prints."""
    match output.form:
        case "json":
            from reconciler.render.layout import as_json

            return f"{as_json(document).decode()}\n"
        case "yaml":
            from reconciler.documents.writer import render_document

            return render_document(_simplify_value(document))
        case "name":
            entries = document[member] if member and member in document else document
            return format_names(entries if isinstance(entries, list) else [document])
    assert output.template is not None
    text = output.template.render(_simplify_value(document))
    return f"{text}\n" if text and not text.endswith("\n") else text


def _simplify_value(document: Any) -> Any:
    """``document`` as it is read from JSON: without structs, and tuples are lists."""
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(document))
