"""The files that users write for models, and the git repository around a workspace."""
