"""Answers: streams that survive broken calls, and the values that they return."""
