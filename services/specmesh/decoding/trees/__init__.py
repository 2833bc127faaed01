"""Trees of draft tokens: their shape, their growth, and what they save."""
