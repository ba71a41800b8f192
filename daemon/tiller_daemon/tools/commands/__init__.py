"""The tools that run shell commands, in the foreground and in the background."""
