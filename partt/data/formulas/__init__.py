"""The formula language of data configs: parsed and interpreted, never `eval`ed."""
