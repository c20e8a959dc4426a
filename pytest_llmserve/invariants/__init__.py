"""One invariant, one file: a permanent id, a spoken name and a check."""
