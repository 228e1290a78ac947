"""weaver's YAML schema, typed and strict."""
