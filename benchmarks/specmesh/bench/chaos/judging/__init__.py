"""Compare what a mesh has said, and stored, with what its target says."""
