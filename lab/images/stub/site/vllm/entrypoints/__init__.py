"""What is started from outside."""
