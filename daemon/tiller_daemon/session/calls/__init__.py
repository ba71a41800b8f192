"""The tool calls of a turn: permission, enclosure, execution."""
