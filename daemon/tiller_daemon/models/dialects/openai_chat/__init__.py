"""Chat Completions: the API of OpenAI and of most compatible servers."""
