"""Parameters of OpenAI's API that not every server takes."""

OPTIONAL = ("seed", "stream_options", "max_tokens")
"""What requests can do without, or have by another name."""
