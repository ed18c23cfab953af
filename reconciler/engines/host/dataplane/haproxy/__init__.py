"""The data plane with HAProxy: one configuration file, brought to the live process through its socket."""
