"""The terminal that a chat runs in: keys, frames, notifications."""
