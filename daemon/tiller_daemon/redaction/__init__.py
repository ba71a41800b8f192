"""Redacts secrets from text of external origin."""
