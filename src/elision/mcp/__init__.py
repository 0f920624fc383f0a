"""Stored sessions for hosts of the Model Context Protocol: search and recall, nothing is written."""
