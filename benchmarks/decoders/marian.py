"""Hugging Face's MarianMT on PyTorch, its `generate` on our weights."""

import worker

args = worker.arguments()

import torch  # noqa: E402
import weights  # noqa: E402
from transformers import GenerationConfig, MarianConfig, MarianMTModel  # noqa: E402

arrays, sizes = weights.read(args)
torch.set_num_threads(sizes.threads)


def build():
    model = MarianMTModel(
        MarianConfig(
            vocab_size=sizes.vocab_size,
            d_model=sizes.d_model,
            encoder_layers=sizes.num_layers,
            decoder_layers=sizes.num_layers,
            encoder_attention_heads=sizes.num_heads,
            decoder_attention_heads=sizes.num_heads,
            encoder_ffn_dim=sizes.dff,
            decoder_ffn_dim=sizes.dff,
            activation_function="relu",
            scale_embedding=True,
            # One more than a translation's tokens: the start token.
            max_position_embeddings=sizes.max_length + 1,
            pad_token_id=worker.PAD_ID,
            eos_token_id=worker.END_ID,
            forced_eos_token_id=None,
            decoder_start_token_id=worker.START_ID,
        )
    ).eval()
    with torch.no_grad():
        copy(model.model.shared.weight, arrays["encoder/embedding/pieces/embeddings"])
        for side in ("encoder", "decoder"):
            stack = getattr(model.model, side)
            table = stack.embed_positions.weight
            # Marian has all sines before all cosines, the paper's are interleaved.
            copy(table, weights.sinusoids(*table.shape))
            for i, layer in enumerate(stack.layers):
                fill(layer, f"{side}/layer_{i}")
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-6
    return model


def fill(layer, name):
    attentions = [("self_attention", "self_attn")]
    if name.startswith("decoder"):
        attentions.append(("cross_attention", "encoder_attn"))
    for ours, theirs in attentions:
        attention = getattr(layer, theirs)
        copy_dense(attention.q_proj, f"{name}/{ours}/mha/query")
        copy_dense(attention.k_proj, f"{name}/{ours}/mha/key")
        copy_dense(attention.v_proj, f"{name}/{ours}/mha/value")
        copy_dense(attention.out_proj, f"{name}/{ours}/mha/output")
        copy_norm(getattr(layer, f"{theirs}_layer_norm"), f"{name}/{ours}")
    copy_dense(layer.fc1, f"{name}/ffn/hidden")
    copy_dense(layer.fc2, f"{name}/ffn/output")
    copy_norm(layer.final_layer_norm, f"{name}/ffn")


def copy_dense(linear, name):
    copy(linear.weight, arrays[f"{name}/kernel"].T)
    copy(linear.bias, arrays[f"{name}/bias"])


def copy_norm(norm, name):
    copy(norm.weight, arrays[f"{name}/add_norm/norm/gamma"])
    copy(norm.bias, arrays[f"{name}/add_norm/norm/beta"])


def copy(parameter, array):
    parameter.copy_(torch.tensor(array))


model = build()


@torch.inference_mode()
def decode(batch, beam, min_tokens, max_tokens):
    source = torch.tensor(worker.padded(batch))
    options = GenerationConfig(
        num_beams=beam,
        do_sample=False,
        max_new_tokens=max(max_tokens),
        min_new_tokens=min_tokens or None,
        suppress_tokens=[*worker.NEVER],
        pad_token_id=worker.PAD_ID,
        eos_token_id=worker.END_ID,
        decoder_start_token_id=worker.START_ID,
    )
    ids = model.generate(
        source,
        attention_mask=(source != worker.PAD_ID).long(),
        generation_config=options,
    )
    return ids[:, 1:].tolist()


worker.serve(decode, "transformers", "torch")
