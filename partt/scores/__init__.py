"""What goes from prediction to evaluation: scores, their columns in files, discriminants."""
