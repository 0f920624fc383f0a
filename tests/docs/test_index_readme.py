"""The README as a package index shows it."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import README, ROOT

core = pytest.importorskip("hatchling.metadata.core", reason="hatchling is not installed")


def build_readme() -> str:
    """Return the long description of the built distribution."""
    manager = pytest.importorskip("hatchling.plugin.manager").PluginManager()
    metadata = core.ProjectMetadata(str(ROOT), manager)
    assert metadata.core.readme_content_type == "text/markdown"
    text: str = metadata.core.readme
    return text


def test_nothing_points_into_the_repository() -> None:
    """No picture, and no link but to other sites and to the README's own headings."""
    text = build_readme()
    assert not re.search(r"<img|<picture|!\[", text)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert targets
    assert all(target.startswith(("https://", "#")) for target in targets)
    assert "](docs/" in README.read_text(encoding="utf-8")


def test_all_else_is_the_readme() -> None:
    """Every line without a link or picture is there as it is."""
    text = build_readme()
    plain = [line for line in README.read_text(encoding="utf-8").splitlines() if not re.search(r"\]\(|<", line)]
    assert [line for line in plain if line not in text.splitlines()] == []
