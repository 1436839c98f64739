"""Objects of a rank: how their bytes leave it and arrive, and the memory of its GPU.

Process groups and cells are above it: nothing here imports them.
"""
