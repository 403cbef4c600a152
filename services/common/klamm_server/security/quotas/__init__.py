"""The quotas of clients at a server (KIP-13, KIP-55, KIP-124, KIP-219, KIP-546). Pure: times are arguments."""
