"""The verifier: a replica of the target model that checks drafts."""
