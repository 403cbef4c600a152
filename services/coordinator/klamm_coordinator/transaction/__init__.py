"""Transactions (KIP-98, 360, 588, 890): what is promised about a transactional id, and what a request means for it."""
