"""The page: what browsers get. Each module has routes, reads by the queries of others, and shows it by a template."""
