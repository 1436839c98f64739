"""What modules call of modules above them. rank.py sets it."""

ticked = None  # steer.ticked(): a clock has ticked while it is armed
inspect_name = None  # shell.inspect_name(); None without IPython
