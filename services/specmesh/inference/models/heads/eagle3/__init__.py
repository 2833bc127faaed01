"""EAGLE-3 heads: one decoder layer that attends to the text by states from inside the target.

Reading order: ``config``, ``network``, ``layer_tap`` (what the states are made of), ``served``,
``published`` and ``folder`` (formats of files), ``draft_attention`` (drafts from all positions of a
text).
"""
