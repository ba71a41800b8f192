"""Messages: the API of Anthropic and of compatible servers."""
