"""Groups of the new protocol (KIP-848) from the member's side: the coordinator assigns, the member reconciles."""
