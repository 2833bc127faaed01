"""The requests of a run and their arrival times."""
