"""Trees of draft tokens: their shape, their growth, and their savings."""
