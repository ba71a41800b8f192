"""The user's files: resolving paths, reading, writing and restoring files.

`paths.py` finds out where a path leads. `pinned_directory.py` opens files below an open directory.
`whole_files.py` reads and writes whole files. `changes.py` changes a group of files completely or
not at all, and `restore.py` restores files. `journal.py` keeps the journals with which unfinished
work is undone after a crash. `images.py` and `documents.py` prepare images and PDF documents for
models.
"""
