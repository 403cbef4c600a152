"""Transactions (KIP-98, 360, 588, 890): the state of a transactional id, and the decisions about its requests."""
