"""Collection, storage and analysis of traces, which show where the time of an answer went.

Reading order: ``spans`` (the data), ``receiver`` (a simple OTLP receiver), ``critical_path`` and
``breakdown`` (the time of an answer), ``speculation`` (latencies and acceptance),
``cancellation`` (the time until cancelled work stops), ``timeline`` (the work of each server).
"""
