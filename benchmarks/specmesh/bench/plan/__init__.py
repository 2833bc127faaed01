"""How many verifiers and drafters a load needs, by simulation.

Reading order: ``setting`` (models, load and objectives), ``predict`` (one mesh, simulated),
``search`` (the smallest that meets the objectives), ``report``; ``check`` holds it against a mesh
of real processes.
"""
