"""The tools that change files, and what they share: replacements, hunks, diffs."""
