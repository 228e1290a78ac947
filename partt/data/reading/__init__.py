"""Files + data config -> batches in a planned order."""
