"""The command `klamm`: one module per group of commands, `output` for tables, JSON and how a command ends."""
