"""The tools that change files, and what they share: encodings, hunks, diffs."""
