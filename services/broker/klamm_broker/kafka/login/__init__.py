"""The logins of Kafka clients (SASL), and the answers before a login."""
