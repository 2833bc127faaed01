"""What calls take, and how long to wait therefore."""
