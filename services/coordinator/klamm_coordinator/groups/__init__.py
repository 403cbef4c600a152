"""Code that the rules of classic groups and of new groups share: their settings, and the type of their turn."""
