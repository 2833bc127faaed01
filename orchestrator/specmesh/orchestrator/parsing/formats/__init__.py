"""The formats in which models write calls of tools, each in a module of its name."""
