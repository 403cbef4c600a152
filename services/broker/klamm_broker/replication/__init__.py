"""Keeps replicas in sync: fetches from leaders, sends changes of in-sync sets to the controller, and resigns
replicas."""
