"""``specmesh trace``, which shows from stored traces where the time of answers went."""
