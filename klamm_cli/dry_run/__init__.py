"""What a change would do: a command with --dry-run reads the present state here, and sends no change."""
