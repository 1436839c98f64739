#!/usr/bin/env python3
"""Cells, their output and their failures work with the group's files behind a socket."""

import os

os.environ["DDIP_TEST_SOCKET"] = "1"

import notebook
import test_errors
import test_output

# What is drawn of messages that have arrived does not depend on how they came.
DRAWN = (
    "test_bars",
    "test_bars_of_displays",
    "test_chained",
    "test_cleared",
    "test_figures_in_the_order_of_ranks",
    "test_first_failure_is_last",
)

if __name__ == "__main__":
    tests = vars(test_output) | vars(test_errors)
    for name in DRAWN:
        del tests[name]
    notebook.run(tests)
