"""What fits this machine: facts of it, advice from them, and a search with measured proof."""
