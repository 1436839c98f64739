"""What a notebook shows of cells: lines, displays, progress bars, tabs, and live views."""
