"""The strategy ``auto``, which chooses among the others while it runs.

Reading order: ``rates`` (closed forms), ``choice`` (the policy), ``stretch`` (an answer's part with
one strategy), ``strategy`` (the changes between them).
"""
