"""The workspace: paths and processes in the user's directory."""
