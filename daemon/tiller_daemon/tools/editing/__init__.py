"""The tools that change files, and their common parts: replacements, hunks, diffs."""
