"""The drafter: a cheap model that guesses ahead of the target."""
