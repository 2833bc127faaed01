"""The peers of an orchestrator: who is there, who is fit for work, and the calls to them."""
