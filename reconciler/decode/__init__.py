"""Many files decoded in short-lived processes, and cached by blob id."""
