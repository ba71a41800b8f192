"""What a shell command line does, as far as its text shows."""
