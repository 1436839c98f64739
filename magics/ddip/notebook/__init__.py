"""The magics and their options, completion, and the debugger of the kernel."""
