"""The APIs whose messages kio decodes. A module has one family of them, with their declarations."""
