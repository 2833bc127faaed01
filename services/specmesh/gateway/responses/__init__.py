"""The responses of the two calls, in OpenAI's shape."""
