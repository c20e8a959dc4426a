"""Verdicts as text and as data."""
