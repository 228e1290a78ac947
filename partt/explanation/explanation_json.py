"""All numbers of an explanation as JSON, and the jets of the page."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from partt.explanation.ablation import Ablation, AblationStudy
from partt.explanation.attended_particles import RelativeAttention
from partt.explanation.attention_statistics import EDGES, PARTS, STATISTICS, HeadStatistics
from partt.explanation.explanation_results import Explanation, GradientSummary
from partt.explanation.jet_display import JetDisplay, strongest_links
from partt.explanation.score_losses import ScoreLosses
from partt.pages.json_text import json_text

FORMAT_VERSION = 1


def explanation_json(found: Explanation, about: Mapping[str, Any]) -> str:
    """Return everything that was computed."""
    attention, embedding = found.attention, found.embedding
    return json_text(
        {
            "format_version": FORMAT_VERSION,
            "about": about,
            "tagger": {"name": found.tagger, "network": found.network, "sha256": found.sha256},
            "classes": found.class_names,
            "jets": found.num_jets,
            "files": found.files,
            "accuracy": found.accuracy,
            "auc": found.area,
            "signal_efficiencies": found.efficiencies,
            "left_out": found.left_out,
            "permutation_importance": [
                {
                    "name": one.change.name,
                    "kind": one.change.kind,
                    "columns": one.change.columns,
                    **_losses(one.losses),
                }
                for one in found.importances
            ],
            "integrated_gradients": _gradients(found.gradients) if found.gradients else None,
            "attention": attention
            and {
                "jets": attention.num_jets,
                "heads": _heads(attention.heads),
                "attended": [_relative(one) for one in attention.attended],
                "subjets": [_relative(one) for one in attention.subjets],
            },
            "ablation": _ablations(found.ablations, found.num_ablation_jets) if found.ablations else None,
            "embedding": embedding
            and {
                "width": embedding.map.width,
                "variances": embedding.map.variances,
                "linear_fits": embedding.map.fits,
            },
            "shown_jets": [
                {"reason": one.reason, "file": one.file, "entry": one.entry, "label": one.label}
                for one in found.displays
            ],
        }
    )


def _losses(losses: ScoreLosses) -> dict[str, Any]:
    return {
        "accuracy": dataclasses.asdict(losses.accuracy),
        "auc": dataclasses.asdict(losses.area),
        "rejections": {name: dataclasses.asdict(loss) for name, loss in losses.rejections.items()},
    }


def _gradients(found: GradientSummary) -> dict[str, Any]:
    return {
        "features": found.features,
        "background": found.background,
        "jets": found.num_jets,
        "mean_absolute": found.means,
        "errors": found.errors,
        "completeness_errors": {
            "largest": found.completeness.max(initial=0.0),
            "mean": found.completeness.mean() if len(found.completeness) else None,
            "jets_left_out": found.num_left_out,
            "jets_by_steps": {
                steps: (found.num_steps == steps).sum() for steps in np.unique(found.num_steps)
            },
        },
    }


def _heads(found: HeadStatistics) -> dict[str, Any]:
    return {
        "blocks": found.blocks,
        "statistics": {
            part: {
                name: {"mean": found.means[:, :, number, place], "error": found.errors[:, :, number, place]}
                for place, name in enumerate(STATISTICS)
            }
            for number, part in enumerate(PARTS)
        },
        "largest_weight": {"edges": EDGES, "shares": found.histograms},
        "variances": {"content": found.variances[..., 0], "pair bias": found.variances[..., 1]},
        "correlations": found.correlations,
    }


def _relative(found: RelativeAttention) -> dict[str, Any]:
    return {
        "title": found.title,
        "categories": found.categories,
        "values": found.values,
        "low": found.low,
        "high": found.high,
        "particles": found.num_particles,
    }


def _ablations(found: AblationStudy, num_jets: int) -> dict[str, Any]:
    def plain(one: Ablation | None) -> dict[str, Any] | None:
        if one is None:
            return None
        return {
            "name": one.name,
            "heads_off": one.heads,
            "cross_entropy": one.entropy,
            **_losses(one.losses),
        }

    return {
        "jets": num_jets,
        "pair_bias": plain(found.pair_bias),
        "blocks": [plain(one) for one in found.blocks],
        "heads": [plain(one) for one in found.heads],
        "together": plain(found.together),
        "num_heads": found.num_heads,
    }


def displays_for_page(jets: Sequence[JetDisplay], colours: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return what the page draws of each jet, with few digits."""
    return [_display(jet, colours) for jet in jets]


def _display(jet: JetDisplay, colours: Mapping[str, str]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "title": f"{jet.reason} · entry {jet.entry}",
        "facts": f"{jet.label or 'no label'}, pT {jet.jet_pt:.0f} GeV, mass {jet.jet_mass:.0f} GeV, "
        f"{len(jet.pt)} particles · {jet.file}, entry {jet.entry}",
        "label": jet.label,
        "scores": [[name, _rounded(score)] for name, score in zip(jet.class_names, jet.scores, strict=True)],
        "x": _list(jet.places[:, 0]),
        "y": _list(jet.places[:, 1]),
        "pt": _list(jet.pt),
        "kinds": jet.kinds,
        "colours": [colours.get(kind, colours[""]) for kind in jet.kinds],
        "displaced": jet.displaced.tolist(),
        "subjets": None if jet.subjets is None else jet.subjets.tolist(),
        "features": {name: _list(values) for name, values in jet.features.items()},
        "attributions": None if jet.attributions is None else [_list(row) for row in jet.attributions],
        "attention": None,
    }
    if jet.attention is not None:
        found = jet.attention
        shown["attention"] = {
            "blocks": [
                {"name": name, "heads": [_links(heads.mean(axis=0)), *(_links(head) for head in heads)]}
                for name, heads in zip(found.blocks, found.particles, strict=True)
            ],
            "token": [
                {"name": name, "heads": [_list(heads.mean(axis=0)), *(_list(head) for head in heads)]}
                for name, heads in zip(found.class_blocks, found.token, strict=True)
            ],
        }
    return shown


def _links(attention: Any) -> list[list[float]]:
    return [[first, second, _rounded(weight)] for first, second, weight in strongest_links(attention)]


def _list(values: Any) -> list[float | None]:
    return [_rounded(value) if np.isfinite(value) else None for value in values]


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
