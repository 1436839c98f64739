"""Functions that run on a new group of ranks: ranch() and what its workers use."""
