"""What can be behind ``LanguageModel``: transformers' models whole or in parts, simulated ones, and
drafters that look at the context alone.
"""
