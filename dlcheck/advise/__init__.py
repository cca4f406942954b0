"""What this machine can do, and what to set in a program's loaders because of it."""
