"""Pure arithmetic shared by every runtime: KV bytes, weights of a rank, rooflines and floors.

Nothing here reads a file. A runtime passes its quirks as arguments; layouts that only vLLM was read
for so far (fused matrices, the padded vocabulary, the words of KV dtypes) still stand here.
"""
