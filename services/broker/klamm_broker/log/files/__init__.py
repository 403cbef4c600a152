"""The small files of a log dir and of a partition, the disk as a port, and what its failures mean."""
