"""A linear probe: how well a linear layer tells the classes from embeddings.

Axes: N jets, D width of the embedding, C classes.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
Labels = npt.NDArray[np.int64]

SHRINKAGE = 1e-3  # of correlations: components of embeddings may depend linearly on each other
TINY = 1e-12  # for components that are always the same


def probe_accuracy(embeddings: Floats, labels: Labels) -> float | None:
    """Return the accuracy of linear layers, each fitted to half of the jets and tried on the other half.

    embeddings (N, D), labels (N,). None if there are fewer than two classes with two jets in each half.
    """
    halves = [np.arange(start, len(labels), 2) for start in (0, 1)]
    counts = [np.bincount(labels[half], minlength=labels.max(initial=0) + 1) for half in halves]
    known = np.flatnonzero(np.minimum(*counts) > 1)
    if len(known) < 2:
        return None
    num_correct = 0
    for fitted, tried in (halves, halves[::-1]):
        weight, bias = linear_layer(embeddings[fitted], labels[fitted], known)
        best = (embeddings[tried].astype(np.float64) @ weight.T + bias).argmax(axis=1)
        num_correct += int((known[best] == labels[tried]).sum())
    return num_correct / len(labels)


def linear_layer(embeddings: Floats, labels: Labels, classes: Labels) -> tuple[Floats, Floats]:
    """Return weight (C, D) and bias (C,) of linear discriminant analysis.

    It is the best linear layer if all classes are normally distributed with the same covariance.
    """
    x = embeddings.astype(np.float64)
    of_class = [x[labels == label] for label in classes]
    means = np.stack([jets.mean(axis=0) for jets in of_class])
    rest = np.concatenate([jets - mean for jets, mean in zip(of_class, means, strict=True)])
    covariance = rest.T @ rest / len(rest)
    variances = np.diag(covariance)
    covariance = covariance + np.diag(SHRINKAGE * variances + TINY * (variances.max() or 1.0))
    weight = np.linalg.solve(covariance, means.T).T
    shares = np.array([len(jets) for jets in of_class]) / len(rest)
    return weight, np.log(shares) - (weight * means).sum(axis=1) / 2
