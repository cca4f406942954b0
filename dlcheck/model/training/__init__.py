"""What a step does with its batches: copies, gradients, waits, results."""
