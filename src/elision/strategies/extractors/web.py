"""Web pages: title, address, HTTP status, size of an accessibility tree."""

from __future__ import annotations

import html
import re
from typing import Any

from elision.strategies.extractors.command import find_command
from elision.strategies.extractors.outcome import (
    Outcome,
    decode_arguments,
    describe_arguments,
    find_text_argument,
    format_count,
    shorten_to_line,
)
from elision.strategies.extractors.result_text import decode_json, find_error_line, unwrap_output
from elision.trajectory.turn import Action, Observation

#: Names of tools that show web pages (globs, any case).
BROWSERS = (
    "*browser*",
    "*web*",
    "*fetch*",
    "*navigate*",
    "*http*",
    "*url*",
    "*playwright*",
    "*puppeteer*",
    "*crawl*",
    "*scrape*",
)

_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{1,500})", re.I)
_DOCUMENT = re.compile(r"<!doctype html|<html[\s>]", re.I)
_STATUS = re.compile(
    r"(?:HTTP/[\d.]{1,4} |status(?:[ _]code)?:? {0,3}|HTTP (?:error )?)([1-5]\d\d)\b([A-Za-z ]{0,30})", re.I
)
_SCREENSHOT = re.compile(r"Here is a screenshot of (?:\[([^\]\n]{0,300})\]\(([^)\n]{1,2000})\)|([^\n]{1,300}?\.) )")
_SNAPSHOT_URL = re.compile(r"(?:Page URL|Current URL|\bURL)\W{1,3}(\S{1,2000})")
_SNAPSHOT_TITLE = re.compile(r"(?:Page Title|Title|RootWebArea)\W{1,3}([^\n'\"]{1,300})")
_NODE = re.compile(r"^[ \t]{0,200}(?:\[\d{1,9}\]|- )\s?\w", re.MULTILINE)
_HEADING = re.compile(
    r"\[\d{1,9}\] heading \"([^\"\n]{1,300})\"|^\s{0,100}- heading \"([^\"\n]{1,300})\"", re.MULTILINE
)


def describe_browser_page(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A page seen through a tool made for it."""
    envelope = unwrap_output(observation.text)
    label = _label_request(action)
    if isinstance(value := decode_json(envelope.body), dict):
        page = _describe_json_page(value)
        if page:
            return Outcome(label or find_text_argument(value, "url"), page)
        return None
    page = _describe_page(envelope.head_and_tail)
    if page:
        return Outcome(label or _find_address(envelope.head), page)
    return None


def describe_fetched_page(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A page or an answer fetched by a shell command."""
    command = find_command(action, observation)
    if (
        command is None
        or not command.only_pipeline
        or command.only_pipeline[0].program not in ("curl", "wget", "http", "lynx")
    ):
        return None
    envelope = unwrap_output(observation.text)
    page = _describe_page(envelope.head_and_tail)
    if not page or command.only_pipeline[-1].program in ("jq", "python", "python3", "wc", "grep"):
        return None
    return Outcome(command.label, envelope.state_failure(page))


def _label_request(action: Action | None) -> str:
    return find_text_argument(decode_arguments(action), "url", "query", "search_query", "q") or describe_arguments(
        action
    )


def _describe_json_page(value: dict[str, Any]) -> str:
    title = find_text_argument(value, "title") or find_text_argument(value, "url")
    elements = value.get("interactive_elements", value.get("elements"))
    if isinstance(elements, list):
        count = format_count(len(elements), "element")
    else:
        count = ""
    if title:
        return ", ".join(part for part in (shorten_to_line(title, 70), count) if part)
    return ""


def _find_address(head: str) -> str:
    screenshot = _SCREENSHOT.search(head[:4_000])
    if screenshot and screenshot[2]:
        return screenshot[2]
    found = _SNAPSHOT_URL.search(head[:4_000])
    if found:
        return found[1]
    return ""


def _describe_page(text: str) -> str:
    """Title, status and kind of a page; "" if `text` shows none."""
    parts = [_find_http_status(text), _find_page_name(text), _describe_element_tree(text)]
    return ", ".join(part for part in parts if part)


def _find_http_status(text: str) -> str:
    head = text[:2_000]
    if _DOCUMENT.match(head.lstrip()[:200]):
        return ""
    found = _STATUS.search(head)
    if found:
        return f"HTTP {found[1]}{found[2].rstrip()}"
    return ""


def _find_page_name(text: str) -> str:
    if screenshot := _SCREENSHOT.search(text[:4_000]):
        return shorten_to_line(screenshot[1] or screenshot[3] or "", 70)
    if _DOCUMENT.search(text[:4_000]):
        title = _TITLE.search(text[:20_000])
        if title:
            return f"page '{shorten_to_line(html.unescape(title[1]), 70)}'"
        return "HTML page"
    if _SNAPSHOT_URL.search(text[:4_000]) or "RootWebArea" in text[:4_000]:
        title = _SNAPSHOT_TITLE.search(text[:4_000])
    else:
        title = None
    if title:
        return shorten_to_line(title[1], 70)
    return ""


def _describe_element_tree(text: str) -> str:
    nodes = len(_NODE.findall(text))
    is_tree = "] " in text[:2_000] or "RootWebArea" in text[:4_000] or "- generic" in text
    if nodes < 5 or not is_tree:
        return ""
    heading = _HEADING.search(text)
    return format_count(nodes, "node") + (
        f", heading '{shorten_to_line(heading[1] or heading[2], 60)}'" if heading else ""
    )


def describe_page_error(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """What else a browsing tool says: its error, or its first line."""
    body = unwrap_output(observation.text).body
    first = body[:2_000].strip().partition("\n")[0]
    if first:
        return Outcome(_label_request(action), (find_error_line(body) if observation.error else "") or first)
    return None
