"""Log directories: finding, opening, creating, moving and deleting the logs of all replicas."""
