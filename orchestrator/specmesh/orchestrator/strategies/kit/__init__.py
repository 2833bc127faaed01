"""What strategies are made of: chains and trees that grow, how far an answer is, when a drafter
speaks, what drafts are drawn with.
"""
