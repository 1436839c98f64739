"""In the place of torch, for tests that need NumPy alone: its import takes seconds."""

raise ModuleNotFoundError("torch is hidden from this test", name="torch")
