"""One short module per verb: parse, load the config, call one function, show progress, print."""
