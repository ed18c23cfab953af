"""What tests share: one way each to make a repository, settings, records, clocks and terminals."""
