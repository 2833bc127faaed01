"""Parts of strategies: alternating drafts and verifications, growing chains and trees, the progress
of an answer, the pace of a drafter's messages, and the noise of drafts.
"""
