"""The comparison of what a mesh said, and stored, with what its target says."""
