"""The README as a package index shows it: an index has none of the repository's files, so nothing may point at one."""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: Pictures of the repository.
_PICTURE = re.compile(r"<picture>.*?</picture>\n+|!\[[^\]]*\]\((?!https?://)[^)]+\)\n*", re.DOTALL)
#: A link to a file of the repository: its words stay. Links to headings of the README stay whole.
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://|#)[^)\s]+\)")


class ReadmeHook(MetadataHookInterface):
    """Sets the dynamic field `readme`."""

    def update(self, metadata: dict[str, object]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": drop_repository_links(text)}


def drop_repository_links(text: str) -> str:
    """Return `text` without pictures of the repository, and with the words of links to its files alone."""
    return _LINK.sub(r"\1", _PICTURE.sub("", text))
