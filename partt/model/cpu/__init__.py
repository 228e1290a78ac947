"""What makes the networks fast on a CPU; none of it changes what they compute."""
