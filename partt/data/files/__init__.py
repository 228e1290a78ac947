"""Files of jets: lists, access, ROOT and parquet."""
