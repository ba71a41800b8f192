"""Text for terminals and files, made of events and items."""
