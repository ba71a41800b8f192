"""What users write in a workspace for a model, and the git repository around it."""
