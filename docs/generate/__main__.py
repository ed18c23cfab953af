"""Write what follows from the code anew: schema files, the rights of the daemon, and every reference page."""

from __future__ import annotations

from docs.generate.kubernetes import ACCESS, render_access_file
from docs.generate.pages import DOCS, pages
from docs.generate.schema_files import SCHEMAS, files

for name, text in files().items():
    (SCHEMAS / name).write_text(text)
ACCESS.write_text(render_access_file())
DOCS.mkdir(exist_ok=True)
for name, text in pages().items():
    (DOCS / name).write_text(text)
