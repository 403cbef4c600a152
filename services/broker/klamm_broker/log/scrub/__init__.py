"""Looking for damage at rest, and rewriting what is damaged."""
