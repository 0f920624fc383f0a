"""The JSON of an audit says what its page in the reference lists."""

from __future__ import annotations

import json
from pathlib import Path

from elision.audit.cause_table import CAUSES
from tests.audit.test_audit_page import report

DOCS = Path(__file__).parents[2] / "docs"


def test_every_key_is_documented() -> None:
    """Each key of `elision.audit/1` is in the reference, and each cause in the guide."""
    found = report().to_json()
    text = (DOCS / "reference/json.md").read_text(encoding="utf-8").partition("## Audit")[2].partition("\n## ")[0]
    keys = {*found, *found["recorded"], *found["findings"][0], *found["saving"], *found["runs"][0]}
    keys |= {key for cause in found["causes"].values() for key in cause}
    assert {key for key in keys if f"`{key}`" not in text} == set()
    guide = (DOCS / "guides/audit.md").read_text(encoding="utf-8")
    assert all(f"`{cause}`" in guide for cause in CAUSES)


def test_the_report_is_plain_json() -> None:
    text = json.dumps(report().to_json(), allow_nan=False)
    assert json.loads(text)["causes"]
