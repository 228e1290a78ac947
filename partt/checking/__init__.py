"""Files + data config -> what would stop a training."""
