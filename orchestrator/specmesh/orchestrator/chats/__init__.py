"""Chats: the template's variables for a request's chat, and the process that runs the template."""
