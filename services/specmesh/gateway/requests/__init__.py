"""The requests of OpenAI's completions and chat APIs, field by field."""
