"""One client for models behind HTTP, whichever API they have."""
