"""Keeping replicas in step: fetching from leaders, telling the controller who is in sync, resigning."""
