"""Recipe + files -> run folder with a trained tagger."""
