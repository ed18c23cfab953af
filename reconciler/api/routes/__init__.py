"""The handlers of the API, by subject; each module lists its operations in ``OPERATIONS``."""
