"""``specmesh bench engine --random``: the engine on a GPU, against the floor of its memory."""
