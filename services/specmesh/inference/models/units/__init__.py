"""One model's forward pass over several unlike processing units that share memory (Ghidorah's
HCMP).

``crew`` makes the units work together, ``linear`` and ``attention`` are the work that it divides,
and ``planner`` decides how much each unit gets.
"""
