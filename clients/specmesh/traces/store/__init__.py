"""The trace store: one SQLite file with a summary row and a blob of spans for each trace.

Reading order: ``schema`` (the tables), ``blob`` (the form of spans), ``limits`` (the size),
``stored_trace`` (what is added), ``writer`` (makes room and adds), ``reader`` (lists and
finds), ``query`` (the filters of a list).
"""
