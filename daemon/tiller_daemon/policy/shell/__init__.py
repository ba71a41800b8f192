"""What a shell command line seems to do, judged by its text."""
