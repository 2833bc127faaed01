"""Traces as files: OTLP's JSON, that of Jaeger and of Tempo, and Chrome's for Perfetto.

Inside the program there is one form, OTLP's messages; ``files`` finds out which one a file has.
"""
