"""What crosses from the main process to its workers and back, and what does not."""
