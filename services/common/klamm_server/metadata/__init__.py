"""The cluster's metadata as every service sees it: one immutable image, replayed from the metadata log."""
