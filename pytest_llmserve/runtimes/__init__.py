"""Serving programs: what each one does with its flags, and what it refuses."""
