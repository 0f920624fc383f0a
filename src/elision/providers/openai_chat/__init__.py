"""OpenAI chat completions, the API of many other servers too."""
