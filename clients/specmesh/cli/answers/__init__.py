"""The commands that generate, ``generate`` and ``chat``: their requests and output."""
