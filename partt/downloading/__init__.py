"""`partt download`: files of public datasets, complete or resumed, verified before they get their names."""
