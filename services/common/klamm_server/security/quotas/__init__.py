"""What clients may still ask of a server (KIP-13, KIP-55, KIP-124, KIP-219, KIP-546): pure, times are arguments."""
