"""deepagents: middleware of `create_deep_agent`, in place of its summarization.

agent = create_deep_agent(model, tools, middleware=[ElisionSummarization("masking(window=10)")])
"""

from __future__ import annotations

from elision.adapters.frameworks import check_framework

check_framework("deepagents", "0.7.0", "deepagents")

from elision.adapters.langchain import ElisionMiddleware  # noqa: E402


class ElisionSummarization(ElisionMiddleware):
    """Keep the requests of deep agents small, in place of the summarization that deepagents has.

        elision = ElisionSummarization("masking(window=10)")
        agent = create_deep_agent(model, tools, middleware=[elision])

    deepagents replaces its own middleware by that of the same name, and its general sub-agent gets it too. A sub-agent
    of your own gets it by its `middleware` entry: `{"name": "lister", ..., "middleware": [elision]}`. Arguments, errors
    and what it does: as `ElisionMiddleware`. Raises FrameworkError on import without deepagents 0.7.
    """

    @property
    def name(self) -> str:
        """The name of the middleware that it replaces."""
        return "SummarizationMiddleware"
