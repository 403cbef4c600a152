"""The state of a cluster: `gather` asks the cluster, `problems` finds problems, `screen` prints both."""
