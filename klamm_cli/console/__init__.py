"""Common parts of the commands: options, connecting, output, exit status, completion."""
