"""Commands that answer: what is asked for, and how it is printed."""
