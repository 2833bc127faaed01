"""One model's forward over several unlike processing units that share memory (Ghidorah's HCMP).

``crew`` has the units work together, ``linear`` and ``attention`` are what it divides, ``planner``
says how much each unit gets.
"""
