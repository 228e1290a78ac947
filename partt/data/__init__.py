"""Files of jets -> JetBatch: `files`, `formulas`, `config` and `reading`, and what they share."""
