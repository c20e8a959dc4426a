"""Text files that are no YAML and no script: Dockerfiles, units, Modelfiles."""
