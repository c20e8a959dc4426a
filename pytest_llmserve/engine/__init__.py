"""The shared engine: roofline and KV-size arithmetic, pure and exact, no I/O."""
