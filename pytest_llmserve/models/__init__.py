"""Models: what a config.json says, as exact shapes."""
