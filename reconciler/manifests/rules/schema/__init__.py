"""The rules that a schema expresses: the constraint is there, with ``x-rule``; its texts are here."""
