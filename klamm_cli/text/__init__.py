"""Records, positions and times as people and scripts write them."""
