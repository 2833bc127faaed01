"""What is kept in Redis: sessions and the directory of prefixes."""
