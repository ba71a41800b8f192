"""Checks and completes the input that frontends send to a session.

`input_queue.py` holds waiting input, and `attachments.py` prepares images and documents.
`slash_commands.py` finds the commands and sub-agents that a text calls. `server_content.py` reads
prompts and resources from MCP servers.
"""
