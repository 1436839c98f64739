#!/usr/bin/env python3
"""The magics where the group's files are behind a socket: what others test on a mount."""

import os

os.environ["DDIP_TEST_SOCKET"] = "1"

import notebook
import test_errors
import test_objects
import test_output

notebook.run(vars(test_objects) | vars(test_output) | vars(test_errors))
