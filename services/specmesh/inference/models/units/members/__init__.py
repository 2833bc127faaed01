"""The members of a crew: cores or GPUs, the jobs that they do, and the memory that they share."""
