"""A forward divided among processing units: is it the same, and when is it quicker?"""
