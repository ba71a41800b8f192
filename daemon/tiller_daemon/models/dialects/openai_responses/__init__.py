"""The Responses API, of OpenAI and compatible servers."""
