"""Provider APIs: one package per API, and what they share."""
