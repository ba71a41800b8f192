"""Renders events and items as text for terminals and files."""
