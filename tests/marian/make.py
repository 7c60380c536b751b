"""Makes the tiny Marian models of this folder, and the answers of `transformers`.

    python make.py

The weights are random and then trained a little on the phrasebook. It needs
``transformers[sentencepiece]`` 4.57, ``torch``, ``tensorflow-cpu`` and ``tf-keras``
(for ``tf_model.h5``), in an environment of their own. Tests use only its results.
"""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import sentencepiece
import torch
from transformers import MarianConfig, MarianMTModel, MarianTokenizer, TFMarianMTModel

HERE = Path(__file__).parent
PHRASEBOOK = HERE.parents[1] / "tfxformer/corpora/data/phrasebook.tsv.gz"
STEPS = 400  # of training
MODELS = {
    "shared": {"activation_function": "swish"},
    "separate": {"activation_function": "relu", "num_beams": 6, "decoder_layers": 1},
    "two_targets": {"activation_function": "swish"},
}
SIZES = {"d_model": 16, "max_position_embeddings": 256, "init_std": 0.02}
SIZES |= {"encoder_layers": 2, "decoder_layers": 2, "dropout": 0.1}
for _side in ("encoder", "decoder"):
    SIZES |= {f"{_side}_attention_heads": 2, f"{_side}_ffn_dim": 32}


def main():
    lines = gzip.decompress(PHRASEBOOK.read_bytes()).decode().splitlines()
    sides = [*zip(*(line.split("\t") for line in lines), strict=True)]
    texts = ["", " ", "Ol\u00e1 \U0001f600!", "\u4f60\u597d", "x"]
    texts += ["\ufb01m   do caf\u00e9"]
    texts += ["\u0645\u0631\u062d\u0628\u0627 Ana", " ".join(sides[0][:8])]
    texts = [*sides[0][::1050], *texts]
    english = [*sides[1][::1050], *sides[1][1 : len(texts)]][: len(texts)]
    pairs = [*zip(texts, english, strict=True)]
    for name, settings in MODELS.items():
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        vocabularies = write_tokenizers(folder, name, sides)
        model, tokenizer = write_model(folder, settings, vocabularies, lines)
        write_answers(folder, model, tokenizer, pairs)


def write_tokenizers(folder, name, sides):
    """Writes the SentencePiece models and the vocabularies; returns the latter."""
    tokens = []
    for side, lines in zip(("source", "target"), sides, strict=True):
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(lines[::20]),
            model_prefix=str(folder / side),
            vocab_size=220,
            character_coverage=0.995,
            # Real models have "nmt_nfkc", of 240 kB in each file.
            normalization_rule_name="nmt_nfkc"
            if folder.name + side == "sharedsource"
            else "identity",
            minloglevel=2,
        )
        (folder / f"{side}.vocab").unlink()
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        model = sentencepiece.SentencePieceProcessor(str(folder / f"{side}.spm"))
        tokens.append([model.IdToPiece(i) for i in range(3, len(model))])
    if name != "separate":
        tokens = [sorted({*tokens[0], *tokens[1]})]  # not in SentencePiece's order
    if name == "two_targets":
        tokens[0] += [">>fra<<", ">>por<<"]
    found = []
    for file, side in zip(("vocab.json", "target_vocab.json"), tokens, strict=False):
        numbers = {x: i for i, x in enumerate(["</s>", "<unk>", *side, "<pad>"])}
        (folder / file).write_text(json.dumps(numbers), "utf-8")
        found.append(numbers)
    return found


def write_model(folder, settings, vocabularies, pairs):
    """Writes a model with random weights."""
    source, target = vocabularies[0], vocabularies[-1]
    pad, separate = target["<pad>"], len(vocabularies) == 2
    config = MarianConfig(
        **{"num_beams": 4, **SIZES, **settings},
        vocab_size=len(source),
        decoder_vocab_size=len(target),
        share_encoder_decoder_embeddings=not separate,
        scale_embedding=True,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        bad_words_ids=[[pad]],
    )
    files = [folder / "source.spm", folder / "target.spm", folder / "vocab.json"]
    tokenizer = MarianTokenizer(
        *map(str, files),
        target_vocab_file=str(folder / "target_vocab.json") if separate else None,
        separate_vocabs=separate,
    )
    torch.manual_seed(0)
    model = MarianMTModel(config)
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if "embed_positions" not in key:
                scale = 0.2 if weight.ndim < 2 else weight.shape[-1] ** -0.5
                weight.normal_(float("norm.weight" in key), scale)
        model.final_logits_bias.normal_(0.0, 0.2)
    train(model, tokenizer, pairs)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    config = json.loads((folder / "config.json").read_text("utf-8"))
    # As in most folders; newer versions of the library put them into another file.
    config |= {"num_beams": settings.get("num_beams", 4), "bad_words_ids": [[pad]]}
    (folder / "config.json").write_text(json.dumps(config, indent=2), "utf-8")
    if folder.name == "two_targets":
        TFMarianMTModel.from_pretrained(folder, from_pt=True).save_pretrained(folder)
        (folder / "model.safetensors").unlink()
        (folder / "generation_config.json").unlink(missing_ok=True)
    card = "---\nlanguage:\n- pt\n- en\nlicense: cc-by-4.0\n---\n\n# Random weights\n"
    (folder / "README.md").write_text(card, "utf-8")
    return model, tokenizer


def train(model, tokenizer, lines):
    """Trains so little that translations differ, and end."""
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    lines = [line.split("\t") for line in lines if len(line) < 50]
    code = ">>por<< " if ">>por<<" in tokenizer.get_vocab() else ""
    for step in range(STEPS):
        texts, targets = zip(*lines[step % 97 :: len(lines) // 32], strict=True)
        texts = [code + text for text in texts]
        batch = tokenizer(texts, text_target=targets, padding=True, return_tensors="pt")
        batch["labels"][batch["labels"] == tokenizer.pad_token_id] = -100
        model.train()(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()


def write_answers(folder, model, tokenizer, pairs):
    """Writes what `transformers` answers: token ids, and arrays of some sentences."""
    arrays, rows = {}, []
    code = ">>por<< " if folder.name == "two_targets" else ""
    unknown = tokenizer.convert_tokens_to_ids("<unk>")
    for number, (text, english) in enumerate(pairs):
        ids = tokenizer([code + text], return_tensors="pt").input_ids
        row = {"text": text, "source": ids[0].tolist(), "english": english}
        row["target"] = tokenizer(text_target=english).input_ids
        rows.append(row)
        options = {
            "max_new_tokens": min(2 * ids.shape[1] + 10, 256),
            "length_penalty": 1.0,
        }
        options |= {"forced_eos_token_id": None, "suppress_tokens": [unknown]}
        options |= {"do_sample": False, "return_dict_in_generate": True}
        greedy = model.generate(ids, **options, num_beams=1)
        beam = model.generate(ids, **options, num_beams=4, output_scores=True)
        row["greedy"] = greedy.sequences[0, 1:].tolist()
        row["beam"] = beam.sequences[0, 1:].tolist()
        row["beam_score"] = float(beam.sequences_scores[0])
        row["translation"] = tokenizer.decode(row["greedy"], skip_special_tokens=True)
        if number < 4:
            with torch.no_grad():
                found = model(input_ids=ids, decoder_input_ids=greedy.sequences[:, :8])
            arrays[f"encoded_{number}"] = found.encoder_last_hidden_state[0].numpy()
            arrays[f"logits_{number}"] = found.logits[0].numpy()
    (folder / "answers.json").write_text(json.dumps(rows, indent=0), "utf-8")
    np.savez_compressed(folder / "answers.npz", **arrays)


if __name__ == "__main__":
    main()
