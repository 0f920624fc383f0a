"""docs/reference/cli.md says what the commands say."""

from __future__ import annotations

import runpy

from tests.docs.blocks import ROOT


def test_reference_is_up_to_date() -> None:
    """The page is what `python docs/update_cli.py` writes."""
    written = runpy.run_path(str(ROOT / "docs" / "update_cli.py"))["reference"]()
    assert (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8") == written
