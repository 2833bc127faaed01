"""The papers' experiments: branch prediction's figures and tables, DSI's study and Table 2."""
