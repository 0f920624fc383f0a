# mypy: ignore-errors
# What this imports is in an environment of its own.
"""What only LiteLLM has."""
