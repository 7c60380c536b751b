"""Makes small Marian models with `transformers`, and keeps its answers.

    python marian_models.py FOLDER CASES.json

CASES.json has the settings of each model by name, and the texts. Weights are random.
"""

import json
import random
import shutil
import sys
from pathlib import Path

import numpy as np
import sentencepiece
import torch
from safetensors.torch import save_file
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

NEVER = -1e4
LANGUAGES = [">>fra<<", ">>por<<", ">>cmn_Hans<<"]
# What marian-vocab finds in encoded text: characters that SentencePiece does not know.
SURFACES = ["你好", "😀", "م", "мир", "\u00ad", "Ω", "ﬀ", "▁你", "é̂"]


def train_tokenizer(folder, side, lines, options):
    options = {"vocab_size": 220, "character_coverage": 0.995} | options
    options.setdefault("normalization_rule_name", "nmt_nfkc")
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(lines),
        model_prefix=str(folder / side),
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    (folder / f"{side}.model").rename(folder / f"{side}.spm")
    (folder / f"{side}.vocab").unlink()
    model = sentencepiece.SentencePieceProcessor(str(folder / f"{side}.spm"))
    return [model.IdToPiece(i) for i in range(3, len(model))]


def write_vocabularies(folder, case, sides):
    """Writes the SentencePiece models and the token ids; returns the latter."""
    spm = case.get("spm", {})
    lists = [
        train_tokenizer(folder, side, lines, spm)
        for side, lines in zip(("source", "target"), sides, strict=True)
    ]
    if case.get("joint"):
        shutil.copy(folder / "source.spm", folder / "target.spm")
        lists = lists[:1]
    separate = case.get("separate", False)
    if not separate:
        lists = [sorted({token for tokens in lists for token in tokens})]
    lists = [choose_tokens(tokens, case) for tokens in lists]
    least = min(map(len, lists))  # `transformers` has one id of padding for both
    special = ["</s>", "<unk>"] + ["<s>"] * bool(case.get("start_token"))
    found = []
    for file, tokens in zip(("vocab.json", "target_vocab.json"), lists, strict=False):
        tokens = [*special, *tokens[-least:], "<pad>"]
        if case.get("shuffled"):
            random.Random(0).shuffle(tokens)
        numbers = {token: number for number, token in enumerate(tokens)}
        (folder / file).write_text(json.dumps(numbers), "utf-8")
        found.append(numbers)
    return found


def choose_tokens(tokens, case):
    """The tokens of a vocabulary, without the special ones."""
    if case.get("no_bytes"):
        tokens = [x for x in tokens if not x.startswith("<0x")]
    if case.get("lacking"):
        tokens = [x for i, x in enumerate(tokens) if i % case["lacking"]]
    more = SURFACES if case.get("surfaces") else []
    more = more + LANGUAGES if case.get("languages") else more
    return [x for x in dict.fromkeys([*tokens, *more]) if x != "<s>"]


def write_weights(folder, model, kind):
    """Writes the weights as safetensors, in parts, or for PyTorch or TensorFlow."""
    half = {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(kind)
    if half:
        model = model.to(half)
    options = {"max_shard_size": "40KB"} if kind == "sharded" else {}
    model.save_pretrained(folder, **options)
    if half:
        model.float()
    file = folder / "model.safetensors"
    state = dict(model.state_dict())
    tied = ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    if kind in ("bin", "old_bin"):
        zipped = kind == "bin"
        torch.save(
            state,
            folder / "pytorch_model.bin",
            _use_new_zipfile_serialization=zipped,
        )
        file.unlink()
    if kind == "all_names":
        state = {name: x.clone() for name, x in state.items()}
        save_file(state, file, metadata={"format": "pt"})
    if kind in ("h5", "old_h5", "old_h5_and_bin"):
        import h5py

        names = {"weight": "kernel:0", "bias": "bias:0"}
        with h5py.File(folder / "tf_model.h5", "w") as opened:
            for name, x in state.items():
                *path, last = name.split(".")
                array = x.numpy()
                if name.startswith(tied):
                    continue
                if name == "final_logits_bias":
                    if kind == "h5":
                        opened["final_logits_bias/final_logits_bias:0"] = array
                    continue
                if name == "model.shared.weight":
                    opened["model/model.shared/model.shared/embeddings:0"] = array
                    continue
                last = names[last]
                if "layer_norm" in path[-1]:
                    last = {"kernel:0": "gamma:0", "bias:0": "beta:0"}[last]
                if path[-1] == "embed_positions":
                    last = "embeddings:0"
                array = array.T if last == "kernel:0" else array
                path = "/".join(path).replace("layers/", "layers.")
                opened[f"model/tf_marian_mt_model/{path}/{last}"] = array
        file.unlink()
        if kind == "old_h5_and_bin":
            torch.save(state, folder / "pytorch_model.bin")
    return half


def write_model(folder, case, vocabularies):
    source, target = vocabularies[0], vocabularies[-1]
    pad, end = target["<pad>"], target["</s>"]
    sizes = {"d_model": 32, "encoder_attention_heads": 4, "encoder_ffn_dim": 48}
    sizes |= {"encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 256}
    sizes |= {"activation_function": "swish"} | case.get("config", {})
    heads, dff = sizes["encoder_attention_heads"], sizes["encoder_ffn_dim"]
    start = target["<s>"] if case.get("start_token") == 2 else pad
    config = MarianConfig(
        **sizes,
        decoder_attention_heads=heads,
        decoder_ffn_dim=dff,
        vocab_size=len(source),
        decoder_vocab_size=len(target),
        share_encoder_decoder_embeddings=not case.get("separate", False),
        scale_embedding=True,
        pad_token_id=pad,
        decoder_start_token_id=start,
        eos_token_id=end,
        forced_eos_token_id=end,
    )
    torch.manual_seed(len(folder.name))
    model = MarianMTModel._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" not in name:
                scale = 0.2 if weight.ndim < 2 else 1.6 * weight.shape[-1] ** -0.5
                weight.normal_(float("norm.weight" in name), scale)
        bias = model.final_logits_bias.normal_(0.0, 0.5)
        bias[0, target["<unk>"]] = NEVER
        bias[0, end] = 3.0
        if case.get("weights") == "old_h5":
            bias.zero_()
    half = write_weights(folder, model, case.get("weights"))
    if half:  # compared in float32
        model = MarianMTModel.from_pretrained(folder, dtype=torch.float32)
        model.set_attn_implementation("eager")
        model.eval()
    for file in ("config.json", "generation_config.json"):
        given = case.get(file, {})
        given = {x: [[pad]] if y == "pad" else y for x, y in given.items()}
        content = json.loads((folder / file).read_text("utf-8")) | given
        (folder / file).write_text(json.dumps(content), "utf-8")
    return model


def main():
    torch.set_num_threads(1)
    out, cases = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text("utf-8"))
    texts, sides = cases["texts"], cases["sides"]
    for name, case in cases["models"].items():
        folder = out / name
        folder.mkdir(parents=True)
        vocabularies = write_vocabularies(folder, case, sides)
        model = write_model(folder, case, vocabularies)
        answers = answer(folder, case, model, vocabularies, texts)
        np.savez_compressed(folder / "attention.npz", **answers.pop("attention"))
        (folder / "answers.json").write_text(json.dumps(answers), "utf-8")
        print(name, flush=True)


def answer(folder, case, model, vocabularies, texts):
    files = [folder / "source.spm", folder / "target.spm", folder / "vocab.json"]
    separate = case.get("separate", False)
    tokenizer = MarianTokenizer(
        *map(str, files),
        target_vocab_file=str(folder / "target_vocab.json") if separate else None,
        separate_vocabs=separate,
    )
    count = case["texts"]
    answers = {"source": tokenizer(texts["ids"][:count]).input_ids}
    target = texts["target_ids"][:count]
    answers["target"] = tokenizer(text_target=target).input_ids
    answers |= {"attention": {}, "greedy": [], "beam": [], "beam_score": []}
    limit = model.config.max_position_embeddings
    pad = model.config.pad_token_id
    for number, text in enumerate(texts["translate"]):
        codes = sorted(x for x in vocabularies[0] if x.startswith(">>"))
        code = codes[0] if codes else ""
        ids = torch.tensor([tokenizer(code + text).input_ids])
        options = {
            "do_sample": False,
            "max_new_tokens": min(2 * ids.shape[1] + 10, limit),
            "bad_words_ids": [[pad]],
            "renormalize_logits": True,
            "forced_eos_token_id": None,
            "return_dict_in_generate": True,
            "length_penalty": 1.0,
            "early_stopping": "never",
        }
        mask = torch.ones_like(ids)
        options |= {"input_ids": ids, "attention_mask": mask}
        with torch.inference_mode():
            greedy = model.generate(**options, num_beams=1).sequences
            beam = model.generate(**options, num_beams=4, output_scores=True)
            found = model(
                input_ids=ids,
                attention_mask=mask,
                decoder_input_ids=greedy[:, :-1],
                output_attentions=True,
            )
        answers["greedy"].append(greedy[0, 1:].tolist())
        answers["beam"].append(beam.sequences[0, 1:].tolist())
        answers["beam_score"].append(float(beam.sequences_scores[0]))
        if number < 5:
            weights = [x[0].numpy() for x in found.cross_attentions]
            answers["attention"][str(number)] = np.stack(weights)
    return answers


if __name__ == "__main__":
    main()
