"""Where the mounts of ddipfs are, and how the files in them, or on a socket, are reached."""
