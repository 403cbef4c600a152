"""The commands, a module for each family; loaded when one of them is called."""
