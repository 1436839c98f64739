"""Whose output something is: the chip of a rank, the label of a result."""

# background and letters of the chip of rank 0, 1 …, then again from the beginning
_CHIPS = ("44;97", "45;97", "42;30", "46;30", "43;30", "41;97", "104;30", "105;30")
_RED, _END = "\x1b[31m", "\x1b[0m"
_LABELLED = {"text/plain", "text/html"}  # these have the label in front


def chip(rank):
    """The rank's number in its colour."""
    return f"\x1b[{_CHIPS[rank % len(_CHIPS)]}m {rank} {_END} "


def result(rank, number, data):
    """(label to print above, bundle) of a rank's result in a cell.

    Text and tables have `Out[rank:number]:` in front, and "" is to be printed above. What is shown
    as something else (a figure, LaTeX, Markdown) stays as it is, below the label.
    """
    prompt = f"Out[{rank}:{number}]:"
    if not data.keys() <= _LABELLED:
        return f"{_RED}{prompt}{_END}\n", data
    bundle = dict(data)
    text = bundle.get("text/plain", "")
    lead = "\n" if "\n" in text else " "
    bundle["text/plain"] = f"{_RED}{prompt}{_END}{lead}{text}"
    if "text/html" in bundle:
        mark = f'<pre style="color:#b22;margin:0">{prompt} </pre>'
        bundle["text/html"] = mark + bundle["text/html"]
    return "", bundle
