"""The tools that search files, with ripgrep."""
