"""What `klamm doctor` looks at on the machine of a server: its configuration, listeners and data directories."""
