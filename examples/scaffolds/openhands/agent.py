"""An agent of the OpenHands SDK behind the gateway: `python agent.py FOLDER TASK`, with OPENAI_API_KEY set."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from openhands.sdk import LLM, Agent, Conversation, Tool
from openhands.tools.file_editor import FileEditorTool
from openhands.tools.terminal import TerminalTool

folder, task = sys.argv[1:]
options = json.loads(Path(__file__).with_name("llm.json").read_text(encoding="utf-8"))
llm = LLM(**options, api_key=os.environ["OPENAI_API_KEY"])
# Without a condenser of its own: the gateway condenses.
agent = Agent(llm=llm, tools=[Tool(name=TerminalTool.name), Tool(name=FileEditorTool.name)], condenser=None)
conversation = Conversation(agent=agent, workspace=folder)
conversation.send_message(task)
conversation.run()
