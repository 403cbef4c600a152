"""The servers' side of SASL, as pure machines over the stored credentials; a door feeds them what a client sends."""
