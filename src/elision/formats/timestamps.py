"""Read recorded points in time as seconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime

from elision.providers.shared.json_reading import number_in


def parse_timestamp(value: object) -> float | None:
    """Return an ISO 8601 text (UTC if it names no zone) or a number of milliseconds in seconds; else None."""
    if not isinstance(value, str):
        milliseconds = number_in(value)
        return None if milliseconds is None else milliseconds / 1000
    try:
        read = datetime.fromisoformat(value)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
