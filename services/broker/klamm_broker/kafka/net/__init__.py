"""Connections of Kafka clients: listeners, TLS, frames, limits, and how answers are sent."""
