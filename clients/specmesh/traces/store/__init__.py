"""Traces on disk: one SQLite file with a row to list and a blob of spans for each trace.

Reading order: ``schema`` (what is where), ``blob`` (how spans are kept), ``limits`` (how much),
``writer`` (adds, and makes room first), ``reader`` (lists and finds), ``query`` (what to list).
"""
