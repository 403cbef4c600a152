"""The pure cores of the controller: requests become records and replies, nothing else happens here."""
