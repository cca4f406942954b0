"""What datasets hold and read, and what their samples are made of."""
