"""The option ``-o``: the forms of the platform, and those of `reconciler`."""

from __future__ import annotations

from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from reconciler.platform_cli.table.row import JSONPATH


class FormType(click.ParamType):  # type: ignore[type-arg] # only newer versions of click have the argument
    """One of ``forms``; what follows ``jsonpath=`` is a template."""

    name = "form"

    def __init__(self, forms: Sequence[str]) -> None:
        self.forms = tuple(forms)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """``value`` if it is a form; raises click's UsageError that names the forms, and the nearest."""
        form, equals, template = value.partition("=")
        if form == JSONPATH:
            self._check_template(template, param, ctx)
            return value
        if value in self.forms and not equals:
            return value
        from reconciler.model.suggest import find_closest_word

        near = find_closest_word(form, (known.partition("=")[0] for known in self.forms))
        hint = f"; did you mean {near}?" if near else ""
        there = f"there are {', '.join(self.forms)}"
        raise click.BadParameter(f"there is no form {value!r}{hint}; {there}", ctx, param)

    def _check_template(self, template: str, param: click.Parameter | None, ctx: click.Context | None) -> None:
        from reconciler.model.lists.jsonpath import parse_template

        if not template:
            self.fail("write a path after jsonpath=, such as jsonpath='{.items[*].name}'", param, ctx)
        try:
            parse_template(template)
        except ValueError as error:
            self.fail(f"jsonpath: {error}", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """The forms that begin so."""
        forms = (form.removesuffix("PATH") for form in self.forms)
        return [CompletionItem(form) for form in forms if form.startswith(incomplete)]
