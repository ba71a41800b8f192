"""The files that users write for models, and the git repository around a workspace.

`repository.py` finds the git repository around a workspace.
"""
