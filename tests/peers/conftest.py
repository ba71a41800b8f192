"""Fixtures for tests against servers that nobody here wrote."""

from support.peers import aimock, aimock_process, llama, llmock, llmock_process

__all__ = ["aimock", "aimock_process", "llama", "llmock", "llmock_process"]
