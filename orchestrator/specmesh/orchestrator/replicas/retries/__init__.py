"""Attempts of a call: which replica gets each, whether there is another, who is to blame."""
