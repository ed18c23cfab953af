"""JSON Schemas: loading, validation, messages and suggestions."""
