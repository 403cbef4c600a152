"""How the parts of a consumer work together, without a face."""
