"""Found before a Python's packages: makes it one without torch, whose import takes a second."""

raise ModuleNotFoundError("torch is hidden from this test", name="torch")
