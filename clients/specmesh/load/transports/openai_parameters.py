"""The parameters of OpenAI's API that some servers refuse."""

OPTIONAL = ("seed", "stream_options", "max_tokens")
"""Parameters that can be left out or renamed."""
