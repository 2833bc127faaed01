"""Analyses of traces, mainly of where the time of answers went."""
