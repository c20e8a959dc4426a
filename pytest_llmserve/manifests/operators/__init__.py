"""Custom resources: kinds of which an operator makes pods."""
