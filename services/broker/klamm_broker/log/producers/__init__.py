"""The state of a log's idempotent and transactional producers (KIP-98)."""
