"""What can be learned: an objective turns a network and a batch into a loss, and sums into metrics."""
