"""Fetches from brokers, and turns the fetched bytes into the records that a poll returns."""
