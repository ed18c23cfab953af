"""The documents of files, and what a person types."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.errors import ReconcilerError, UsageError
from reconciler.input_files import read_file, read_files, shown_name
from reconciler.model.finding import Pointer

if TYPE_CHECKING:
    from reconciler.documents.recognition import Recogniser


class InputError(ReconcilerError):
    """A document cannot be read; the message names its place and fault."""


class Input(NamedTuple):
    """A document of a file, and the line where it begins; ``value`` is None if ``fault`` says why it is unusable.

    It is the document ``number`` of ``raw``, or what is ``at`` a place in that; ``raw`` is empty if it comes from no
    text.
    """

    path: str
    line: int
    value: Any
    fault: str = ""
    raw: bytes = b""
    number: int = 0
    at: Pointer = ()

    @property
    def place(self) -> str:
        """``FILE:LINE``."""
        return self.place_of("").rpartition(":")[0] if self.at else f"{self.path}:{self.line}"

    def place_of(self, pointer: str) -> str:
        """``FILE:LINE:COLUMN`` of the value at a JSON pointer, or of what has to hold it; "" without a text."""
        if not self.raw:
            return ""
        from reconciler.documents.encoding import is_json
        from reconciler.documents.locator import locate_document
        from reconciler.model.resource import pointer_parts

        places = locate_document(self.raw, self.number, is_json=is_json(self.raw.lstrip()))
        line, column = places.key((*self.at, *pointer_parts(pointer)))
        return f"{self.path}:{line}:{column}"


def read_documents(contents: dict[str, bytes]) -> list[Input]:
    """All documents, those with a fault too, in the order of the files. The items of a list in JSON are documents."""
    # The reader takes 20 ms to import, and most commands read no document.
    from reconciler.documents.encoding import is_json
    from reconciler.documents.reader import parse_documents

    inputs = []
    for path, raw in contents.items():
        reading = parse_documents(raw, is_json=is_json(raw.lstrip()))
        inputs += [
            Input(path, document.line, document.value, raw=raw, number=document.index) for document in reading.documents
        ]
        inputs += [Input(path, fault.line, None, f"{fault.message} [{fault.rule}]") for fault in reading.faults]
    return inputs


def read_object(name: str, recogniser: Recogniser | None = None) -> dict[str, Any]:
    """The one object in the file ``name``, or on standard input. Raises UsageError and InputError.

    With a ``recogniser``, raises RefusedError for a file of another tool.
    """
    contents = read_files([name])
    if recogniser:
        recogniser.refuse_others(contents)
    documents = read_documents(contents)
    for document in documents:
        if document.fault:
            raise InputError(f"{document.place}: {document.fault}")
    if len(documents) != 1 or not isinstance(documents[0].value, dict):
        raise InputError(f"{shown_name(name)} must hold one object, in YAML or JSON")
    return dict(documents[0].value)


def read_value(name: str) -> Any:
    """The one value in the file ``name``, or on standard input. Raises UsageError and InputError."""
    from reconciler.documents.encoding import is_json_list

    contents = read_files([name])
    documents = read_documents(contents)
    if all(map(is_json_list, contents.values())) and not any(document.fault for document in documents):
        return [document.value for document in documents]
    if len(documents) != 1 or documents[0].fault:
        fault = next((f"{document.place}: {document.fault}" for document in documents if document.fault), "")
        raise InputError(fault or f"{shown_name(name)} must hold one document, in YAML or JSON")
    return documents[0].value


def read_text(name: str, remedy: str = "encode it with base64, and add --encoding base64") -> str:
    """The text of the file ``name``, or of standard input. Raises UsageError with the ``remedy`` if it is no text."""
    content = read_file(name)
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{shown_name(name)} is not text in UTF-8; {remedy}") from None


def read_hidden(title: str) -> str:
    """A line of standard input, hidden while it is typed behind ``title``. Raises UsageError if it is empty."""
    import click

    text = str(click.prompt(title, hide_input=True, err=True)) if sys.stdin.isatty() else sys.stdin.readline()
    if not text.strip():
        raise UsageError(f"standard input has no {title.lower()}")
    return text.strip()
