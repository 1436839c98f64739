"""In front of a Python's packages: then it has no torch."""

raise ImportError("there is no torch here")
