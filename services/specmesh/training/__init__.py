"""Training of the model pair that ships with specmesh, offline, on the Python standard library.

Reading order: ``models/corpus`` (the files, and which are held out), ``tokenizer``, ``optimise``
(one resumable loop for both models), ``distill`` (the drafter learns the target), ``evaluate``
(losses and the acceptance rate), ``card`` and ``__main__``.
"""
