"""Found before a Python's packages: makes it a Python without torch."""

raise ImportError("there is no torch here")
