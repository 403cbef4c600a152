"""What a log knows of idempotent and transactional producers (KIP-98)."""
