"""A trained network with all that is needed to use it: files, inference, the ones that partt ships."""
