"""The Messages API, of Anthropic and compatible servers."""
