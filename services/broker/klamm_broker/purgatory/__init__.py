"""A place for waiting requests: a timing wheel, and the purgatory that parks operations on it."""
