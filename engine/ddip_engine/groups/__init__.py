"""Process groups, the store where their ranks meet, and their repair when one has died.

Cells are above it: nothing here imports them.
"""
