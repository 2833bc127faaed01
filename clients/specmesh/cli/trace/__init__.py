"""``specmesh trace``: where the time of answers went, from the traces that were kept."""
