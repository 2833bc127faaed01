"""The standing of every parameter of every call: tables, by name."""
