"""Fixtures for tests against servers that nobody here wrote."""

from support.peers import aimock, aimock_process, codex_apply_patch, llama, llmock, llmock_process

__all__ = ["aimock", "aimock_process", "codex_apply_patch", "llama", "llmock", "llmock_process"]
