"""Speed of the training loop."""

from time import perf_counter


class Clock:
    """Speed and time spent waiting for data, since a step."""

    def __init__(self, step: int) -> None:
        self._started = perf_counter()
        self._first_step = self._step = step
        self._waited = 0.0
        self._seconds = 1e-9

    def add(self, step: int, waited: float) -> None:
        """Add steps done, and seconds spent waiting for data."""
        self._step = step
        self._waited += waited
        self._seconds = perf_counter() - self._started

    @property
    def seconds(self) -> float:
        """Seconds from the start to the last step."""
        return self._seconds

    @property
    def waiting(self) -> float:
        """Fraction of the time spent waiting for data."""
        return min(1.0, self._waited / self._seconds)

    @property
    def seconds_per_step(self) -> float:
        """Mean duration of a step."""
        return self._seconds / max(1, self._step - self._first_step)

    def jets_per_second(self, batch_size: int) -> float:
        """Return the jets of all processes per second."""
        return (self._step - self._first_step) * batch_size / self._seconds
