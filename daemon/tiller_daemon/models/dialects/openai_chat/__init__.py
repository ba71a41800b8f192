"""The Chat Completions API, of OpenAI and most compatible servers."""
