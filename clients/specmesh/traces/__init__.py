"""Receives traces and reads them: where did the time of one answer go?

Reading order: ``spans`` (what is kept), ``receiver`` (how it comes in), ``critical_path``
and ``breakdown`` (what an answer waited for), ``speculation`` (latencies and acceptance),
``cancellation`` (how soon cancelled work stops), ``timeline`` (who did what when).
"""
