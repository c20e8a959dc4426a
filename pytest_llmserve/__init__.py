"""Serving-invariant assertions for LLM deployments."""

__version__ = "0.1.0"
