"""What a long trial measured, as lines in the summary of the run: kills, requests, bodies, and what was lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

#: Adds a line to the summary: the fixture `report_figures`.
ReportFigures: TypeAlias = Callable[[str], None]
#: The property of a test's report under which its lines reach the process that prints the summary.
FIGURES = "figures"
