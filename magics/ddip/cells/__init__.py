"""Cells: submitted, followed, interrupted, and what they raise; objects that are sent with them."""
