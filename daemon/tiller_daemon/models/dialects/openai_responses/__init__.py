"""Responses: the API of OpenAI and of compatible servers."""
