"""Instruments, and the port that shows them to Prometheus."""
