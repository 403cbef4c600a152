"""The command `klamm`: one module per group of commands, `output` for tables and JSON, `errors` for how it ends."""
