"""Performs the commands of a strategy over the mesh and feeds back events."""
