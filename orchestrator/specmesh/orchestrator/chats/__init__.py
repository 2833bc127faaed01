"""Chats: what of a request's chat the template gets, and the process that runs the template."""
