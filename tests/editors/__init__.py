"""The schemas in an editor: a real language server over the examples."""
