"""Breakpoints that a front end's debugger has set in a cell: it cannot reach the ranks."""


def are_set(shell):
    """True if the front end has set a breakpoint in the cell that is being executed."""
    debugger = getattr(getattr(shell, "kernel", None), "debugger", None)
    there = getattr(debugger, "breakpoint_list", None)  # file of a cell -> its breakpoints
    if not there:
        return False
    from ipykernel.compiler import get_file_name

    request = shell.get_parent() or {}
    return bool(there.get(get_file_name(request.get("content", {}).get("code", ""))))
