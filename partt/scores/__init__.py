"""The record that goes from prediction to evaluation, and its columns in files."""
