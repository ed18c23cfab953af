"""Files and directories on this host: written whole, owned by the users of containers, removed without a trace."""
