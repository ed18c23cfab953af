"""Write every reference page anew."""

from __future__ import annotations

from tests.docs.pages import DOCS, pages

DOCS.mkdir(exist_ok=True)
for name, text in pages().items():
    (DOCS / name).write_text(text)
