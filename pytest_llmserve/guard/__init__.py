"""Guarding a repository over time: ignores, the baseline, changes against a base, the fleet."""
