"""The tool calls of a turn: their permission, enclosure and execution."""
