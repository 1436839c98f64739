"""Cells and programs: how they run, what they print, and what interrupts them."""
