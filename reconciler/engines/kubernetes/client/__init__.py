"""A client of the Kubernetes API: credentials, few verbs on plain JSON objects, watches, and errors for people."""
