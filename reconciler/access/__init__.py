"""Who may do what: policies, groups and built-in grants, compiled for one decision function."""
