"""Addresses in variables: where they lead, and what is said of those that lead nowhere."""

from __future__ import annotations

import pytest

from elision.config import load_settings
from elision.errors import ElisionError
from elision.wrap.findings import find_gateway_in_use, is_address, is_gateway, read_upstreams, strip_path

BROKEN = ["http://127.0.0.1:notaport/v1", "http://127.0.0.1:99999", "http://[::1", "no url", "file:///etc/passwd", "/"]


@pytest.mark.parametrize("url", BROKEN)
def test_what_is_no_address(url: str) -> None:
    """It is no gateway's and no upstream's; the error names the variable, and not its value."""
    assert not is_address(url)
    assert not is_gateway(url)
    assert find_gateway_in_use({"OPENAI_BASE_URL": url}) is None
    with pytest.raises(ElisionError, match=r"^OPENAI_BASE_URL is not an http or https address; fix or unset it$"):
        read_upstreams(load_settings({}), {"OPENAI_BASE_URL": url})


def test_upstreams() -> None:
    """Where clients sent their requests before."""
    environ = {"OPENAI_API_BASE": "https://proxy.example/v1", "ANTHROPIC_BASE_URL": ""}
    assert read_upstreams(load_settings({}), environ) == {"gateway_upstream_openai": "https://proxy.example/v1"}


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/anthropic", "/anthropic/v1", "/openai/"])
def test_a_gateways_own_address(path: str) -> None:
    """Below a provider's name and a version it is the same gateway."""
    assert strip_path(f"http://127.0.0.1:8377{path}") == "http://127.0.0.1:8377"
