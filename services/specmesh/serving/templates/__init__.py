"""Chat templates and tokenizers, which processes of a mesh send each other."""
