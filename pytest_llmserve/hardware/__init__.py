"""Accelerators: what they are, what they are called, and what they hold."""
