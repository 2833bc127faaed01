"""The stores in Redis: sessions and the directory of prefixes."""
