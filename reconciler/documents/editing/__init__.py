"""Changes in the text of YAML documents."""
