"""smolagents with Elision, offline: a script stands in for the model."""

from smolagents import ChatMessage, CodeAgent, MessageRole, Model, TokenUsage, tool

from elision.adapters.smolagents import ElisionMemory


class ScriptedModel(Model):
    """Asks for 30 pages, reads one of them again, and ends."""

    def generate(self, messages, **options):
        self.sent = messages
        turn = sum(message.role == MessageRole.TOOL_RESPONSE for message in messages) + 1
        code = f"print(read_page({turn}))"
        if turn == 31:
            code = 'print(elision_recall("t2.1", head=3))'
        elif turn == 32:
            code = 'final_answer("All pages are read.")'
        usage = TokenUsage(sum(len(str(message.content)) for message in messages) // 4, 20)
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{code}\n</code>", token_usage=usage)


@tool
def read_page(number: int) -> str:
    """Reads a page.

    Args:
        number: Of the page.
    """
    return "\n".join(f"page {number}, line {line}: nothing but oranges" for line in range(100))


with ElisionMemory("masking(window=5)", store="memory:") as elision:
    model = ScriptedModel(model_id="gpt-5")
    agent = elision.attach(CodeAgent(tools=[read_page], model=model, max_steps=40, verbosity_level=0))
    print(agent.run("Read all pages."))
    report = elision.sessions.open(elision.get_session(agent)).session.report()

print("sent:", model.sent[7].content[0]["text"][:65].splitlines())
print("kept:", agent.memory.steps[2].observations[:60].splitlines())
print("recalled:", agent.memory.steps[31].observations.splitlines()[1:3])
print(f"saved: {report.savings.tokens:,} tokens")
