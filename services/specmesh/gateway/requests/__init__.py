"""What the two calls of OpenAI's API take, field by field."""
