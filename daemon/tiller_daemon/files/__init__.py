"""Files in the user's directory: where a path leads, reading, writing, putting back."""
