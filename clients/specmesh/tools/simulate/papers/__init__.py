"""Experiments of the papers: branch prediction's figures and tables, DSI's study and Table 2."""
