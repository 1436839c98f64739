"""Hides torch from tests that need only NumPy: its import takes seconds."""

raise ModuleNotFoundError("torch is hidden from this test", name="torch")
