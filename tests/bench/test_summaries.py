"""What missing facts are, by what of them the view has."""

from __future__ import annotations

import pytest
from benchmarks.summaries import find_cause


@pytest.mark.parametrize(
    ("item", "cause"),
    [
        ("540", "a number"),
        ("settings.py", "in the view, within a longer word"),
        ("/testbed/src/app.py", "in the view, in parts"),
        ("get_model", "nowhere in the view"),
    ],
)
def test_causes(item: str, cause: str) -> None:
    """A number, a part of a word that is there, a word whose parts are there, a word that is gone."""
    assert find_cause(item, "cd /testbed && grep 540 src/app.py old_settings.py") == cause
