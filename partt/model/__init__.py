"""Networks: JetInputs -> outputs of heads; imports nothing from data."""
