"""From the brokers' bytes to records."""
