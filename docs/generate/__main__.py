"""Write the schema files that follow from others anew, and then every reference page."""

from __future__ import annotations

from docs.generate.pages import DOCS, pages
from docs.generate.schema_files import SCHEMAS, files

for name, text in files().items():
    (SCHEMAS / name).write_text(text)
DOCS.mkdir(exist_ok=True)
for name, text in pages().items():
    (DOCS / name).write_text(text)
