"""How far groups are behind, computed from the history of their offsets. Pure."""
