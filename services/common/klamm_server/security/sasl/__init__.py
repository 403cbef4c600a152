"""The servers' side of SASL, as pure machines over the stored credentials. A listener feeds them the client's data."""
