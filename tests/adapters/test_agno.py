"""The adapter of Agno."""

from __future__ import annotations

from tests.adapters.contract import AdapterContract


class TestAgno(AdapterContract):
    """Every scenario, with sessions in JSON files."""

    HOST = "agno"
    HOOK = "tests.adapters.hooks.agno:attach"
