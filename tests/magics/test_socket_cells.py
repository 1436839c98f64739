#!/usr/bin/env python3
"""Cells, their output and their failures work with the group's files behind a socket."""

import os

os.environ["DDIP_TEST_SOCKET"] = "1"

import notebook
import test_errors
import test_output

if __name__ == "__main__":
    notebook.run(vars(test_output) | vars(test_errors))
