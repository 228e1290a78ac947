"""ROOT columns -> JetBatch."""
