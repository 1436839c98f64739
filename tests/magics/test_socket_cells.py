#!/usr/bin/env python3
"""Cells, their output and their failures work with the group's files behind a socket: what takes
other operations there than on a mount."""

import os

os.environ["DDIP_TEST_SOCKET"] = "1"

import notebook
import test_errors
import test_output

if __name__ == "__main__":
    output = "streams rich cleared results flood replay"
    errors = "errors told failure_is_shown_at_once a_hang_explains_itself interrupt input_fields"
    errors += " one_dialog_at_a_time prompts_end within_a_rank two_notebooks of_others"
    errors += " kernel_restart"
    notebook.run(notebook.some(test_output, output) | notebook.some(test_errors, errors))
