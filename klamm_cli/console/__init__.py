"""What commands share: options, connecting, output, exit status, completion."""
