"""The decoder of masked particles: from the tokens that are left, and questions, to answers.

Axes: B jets, T particles of all jets: V that are left and M that are masked; D widths of tokens and jets,
W width of the decoder.
"""

from torch import Tensor, nn

from partt.model.attention import mask_to_bias
from partt.model.blocks import ParticleBlock
from partt.model.grouping import group_jets, join_rows, split_rows
from partt.model.network import Backbone, Embeddings
from partt.model.particle_transformer_config import ParticleTransformerConfig
from partt.training.objectives.masking import MaskedJets
from partt.training.recipe import DecoderChoice


class ParticleDecoder(nn.Module):
    """Self-attention among the particles of a jet: tokens of those left, and a question for each masked one.

    Questions know the embedding of their jet, so that pre-training trains all of a backbone.
    """

    def __init__(self, backbone: Backbone, choice: DecoderChoice) -> None:
        super().__init__()
        config = ParticleTransformerConfig(
            width=choice.width,
            num_heads=choice.num_heads,
            feed_forward_width=2 * choice.width,
            block="swiglu",
            dropout=0.0,
            attention_dropout=0.0,
            activation_dropout=0.0,
        )
        self.from_tokens = nn.Sequential(
            nn.LayerNorm(backbone.token_width), nn.Linear(backbone.token_width, choice.width)
        )
        self.from_jets = nn.Linear(backbone.width, choice.width)
        self.blocks = nn.ModuleList(ParticleBlock(config) for _ in range(choice.num_blocks))
        self.norm = nn.LayerNorm(choice.width)

    def forward(self, embeddings: Embeddings, questions: Tensor, masked: MaskedJets) -> Tensor:
        """Return the answers (M, W) to questions (M, W), from the embeddings of the particles left."""
        tokens = self.from_tokens(embeddings.particles)  # (V, W)
        questions = questions + self.from_jets(embeddings.jets)[masked.jets]
        x = tokens.new_zeros(masked.layout.num_rows, tokens.shape[1])  # (T, W)
        x = x.index_copy(0, masked.left, tokens).index_copy(0, masked.rows, questions.to(x.dtype))
        groups = group_jets(masked.layout)
        parts = []
        for group, part in zip(groups, split_rows(x, groups), strict=True):
            bias = None if group.mask is None else mask_to_bias(group.mask, x.dtype)[:, None]
            y = part
            for block in self.blocks:
                y = block(y, bias)
            parts.append(y)
        answers: Tensor = self.norm(join_rows(parts, groups, masked.layout)[masked.rows])
        return answers
