"""Pure arithmetic shared by every runtime: KV bytes, weights of a rank, rooflines and floors.

Nothing here reads a file or knows a serving program; a runtime passes its quirks as arguments.
"""
