"""Chat templates and tokenizers, as they travel through a mesh."""
