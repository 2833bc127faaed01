"""What the two calls answer, in OpenAI's shape."""
