"""The tools of a request, and the choice among them."""
