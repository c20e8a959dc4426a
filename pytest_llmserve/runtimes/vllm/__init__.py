"""vLLM, by version."""
