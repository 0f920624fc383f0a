"""The adapter of the OpenHands SDK keeps the contract."""

from __future__ import annotations

from tests.adapters.contract import AdapterContract


class TestOpenHands(AdapterContract):
    HOST = "openhands"
    HOOK = "tests.adapters.hooks.openhands:attach"
