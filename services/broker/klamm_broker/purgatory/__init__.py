"""Where requests wait: a timing wheel, and the purgatory that parks operations on it."""
