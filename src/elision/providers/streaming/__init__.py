"""Responses as they arrive: frames of events, and one response for the client out of several upstream ones."""
