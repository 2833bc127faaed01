"""What strategies are made of: drafts and verifications that take turns, chains and trees that
grow, the progress of an answer, how often a drafter sends, the noise of drafts.
"""
