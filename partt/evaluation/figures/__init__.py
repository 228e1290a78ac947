"""The figures of a report, one module each: numbers -> Drawing."""
