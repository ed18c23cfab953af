"""Write the schema files that follow from others anew, that of the records too, and then every reference page."""

from __future__ import annotations

from docs.generate import database_schema
from docs.generate.pages import DOCS, pages
from docs.generate.schema_files import SCHEMAS, files
from reconciler.records.migrations import SCHEMA_FILE

SCHEMA_FILE.write_text(database_schema.statements())
for name, text in files().items():
    (SCHEMAS / name).write_text(text)
DOCS.mkdir(exist_ok=True)
for name, text in pages().items():
    (DOCS / name).write_text(text)
