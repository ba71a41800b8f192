"""A turn's context: its settings, prompt, tools and permissions, frozen when it begins."""
