"""Who draws which numbers and which samples: seeds, generators, samplers, ranks."""
