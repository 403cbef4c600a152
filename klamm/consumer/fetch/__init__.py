"""The way from bytes that a broker sent to records that a poll returns."""
