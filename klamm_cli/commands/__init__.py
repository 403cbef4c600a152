"""The commands of `klamm`, one module for each family. A module is loaded when one of its commands runs."""
