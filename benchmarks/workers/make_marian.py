"""Writes a Marian model with random weights, which never ends a sentence."""

import json
import sys

import torch
from transformers import MarianConfig, MarianMTModel

folder, sizes = sys.argv[1:]
sizes = json.loads(sizes)
pad, end = sizes["vocab_size"] - 1, 0
torch.manual_seed(0)
model = MarianMTModel(
    MarianConfig(
        **sizes,
        scale_embedding=True,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=end,
        forced_eos_token_id=None,
    )
)
model.final_logits_bias[0, [end, end + 1, pad]] = -1e4  # the end, unknown, padding
model.save_pretrained(folder)
