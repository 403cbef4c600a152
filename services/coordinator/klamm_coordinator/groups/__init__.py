"""What the rules of every kind of group share: the settings that they obey, and the turn that they get."""
