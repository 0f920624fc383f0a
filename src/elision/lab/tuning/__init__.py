"""Tuning: the settings of a strategy that suit the user's own runs, found on some of them and judged on others."""

from __future__ import annotations

from typing import Final

#: Points that are evaluated unless the user asks for more: 8 runs of 80 calls take one process two minutes.
TRIALS: Final = 64
JUDGE_SHARE: Final = 0.3
#: Of the facts that stay visible under the default, a recommended point keeps this share at least. All of them: what
#: was chosen with 0.98 lost more than that on the runs to judge in two of three searches (docs/guides/measure.md).
MIN_EVIDENCE: Final = 1.0
