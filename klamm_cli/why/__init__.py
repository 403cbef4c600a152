"""Finds out why a group is behind: `gather` asks the cluster, `causes` decides, `report` prints."""
