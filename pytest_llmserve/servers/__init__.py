"""Servers: launches joined with the model, the GPU and the facts that their team declared."""
