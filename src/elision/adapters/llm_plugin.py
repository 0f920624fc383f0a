"""The plugin of the command `llm`: a model `elision/NAME` for each model that takes tools, and the recall tools.

llm -m elision/gpt-5 -T elision_recall -T elision_search -T my_tool --chain-limit 0 "Begin."

It has the settings of the environment and elision.toml.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from elision.adapters.guarded_calls import NO_DEFERRED_TOOLS, read_pool_options
from elision.errors import SettingError
from elision.manager.advanced_options import CacheControl
from elision.manager.context import ContextManager
from elision.manager.session_pool import Sessions

_log: Final = logging.getLogger("elision.adapters")

try:
    import llm

    from elision.adapters.llm import ElisionLLM
except ImportError as error:
    # A plugin that cannot be loaded would end the command itself.
    _log.warning("%s", error)
else:

    @llm.hookimpl(trylast=True)
    def register_models(register: Any, model_aliases: Sequence[Any]) -> None:
        """Register a model around each that takes tools."""
        elision = _make_adapter()
        for known in list(model_aliases):
            if getattr(known.model, "supports_tools", False):
                around = known.async_model and elision.wrap_model(known.async_model)
                register(elision.wrap_model(known.model), around)

    @llm.hookimpl
    def register_tools(register: Any) -> None:
        """Register the recall tools."""
        for tool in _make_adapter().tools:
            register(tool)

    @cache
    def _make_adapter() -> ElisionLLM:
        return ElisionLLM(sessions=_LateSessions())


class _LateSessions(Sessions):
    """Sessions whose store is opened with the first of them: most commands ask no model."""

    def __init__(self) -> None:
        self._pool: Sessions | None = None

    @property
    def defers_tools(self) -> bool:
        """Not before the settings are read; `open` refuses it then."""
        return False

    def open(
        self, name: str, *, parent: str = "", model: str = "", cache_control: CacheControl | None = None
    ) -> ContextManager:
        """Do as `Sessions.open`. Raises SettingError where a setting is wrong, and StoreError."""
        if self._pool is None:
            options = read_pool_options(os.environ, cache_control="client")
            if options.get("tools") == "defer":
                raise SettingError(NO_DEFERRED_TOOLS)
            self._pool = Sessions(options.pop("strategy"), **options)
            atexit.register(self._pool.close)
        return self._pool.open(name, parent=parent, model=model, cache_control=cache_control)
