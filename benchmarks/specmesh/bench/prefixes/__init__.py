"""What chats gain when orchestrators tell each other which replica holds which prefix:
``specmesh bench prefixes``.

Reading order: ``chats`` (what is asked), ``mesh`` (who is asked, with and without the directory),
``measure`` (the runs), ``report``.
"""
