"""The pages of the frameworks: their code runs in each framework's own environment (tests/adapters/test_pages.py)."""

from __future__ import annotations

from tests.adapters.environments import ENVIRONMENTS
from tests.docs.blocks import DOCS

#: In docs/frameworks, each named as its host. What else is there needs no framework.
FRAMEWORK_PAGES = [
    page for page in DOCS if page.parent.name == "frameworks" and page.stem.replace("-", "_") in ENVIRONMENTS
]
