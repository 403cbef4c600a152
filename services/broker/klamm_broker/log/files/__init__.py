"""The small files of a log directory and of a partition, the interface of the disk, and the errors of its failures."""
