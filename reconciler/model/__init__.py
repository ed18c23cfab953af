"""The data types of the project: frozen values without side effects."""
