"""The trace and the picture of a beam search, for `other_tasks.ipynb`."""

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

from tfxformer.decoding.beam import BeamSearch
from tfxformer.decoding.step import DecoderStep, Sources, length_limit
from tfxformer.notebooks.patterns import END
from tfxformer.tokenizer import encode_source


def clearest(sources, references, found, most=5):
    """The short sentence that only the beam gets right, with the largest gain."""
    (greedy, before), (beam, after) = found.values()
    gains = {
        text: after[n] - before[n]
        for n, text in enumerate(sources)
        if greedy[n] != beam[n] == references[n] and len(beam[n].split()) <= most
    }
    return max(gains, key=gains.get, default=sources[0])


class TracedSearch(BeamSearch):
    """A beam search that remembers the candidates of its newest step."""

    def finish(self, position, sources, state, candidates):
        self.candidates = candidates
        return super().finish(position, sources, state, candidates)


def beam_steps(translator, text):
    """What a translator's beam search keeps at each step, and how two hypotheses grow.

    Returns two values; hypotheses are tuples of token ids:

    - for each step, the hypotheses that stay in the beam, the best first;
    - for "greedy" decoding and the best of the "beam", ``{hypothesis: score}`` from the
      first token to the last.
    """

    def scored(ids, totals):
        rows = [tuple(map(int, row)) for row in np.array(ids)]
        return dict(zip(rows, np.array(totals) / np.shape(ids)[1], strict=True))

    model, options = translator.folded(), translator.options
    source = encode_source(translator.tokenizer, tf.constant([text]))
    limit = length_limit(source, options, model.max_length)
    sources = Sources(source, limit, (), model.encode(source))
    search = TracedSearch(DecoderStep(model, options.beam_size, options), options)
    state, steps, scores, ends, greedy = search.start(sources), [], {}, {}, ()
    while state.going[0]:
        before, state = state, search.step(tf.constant(len(steps)), sources, state)
        parent, token, total = (x[0] for x in search.candidates)
        longer = tf.concat([tf.gather(before.ids[0], parent), token[:, None]], axis=1)
        new = scored(longer, total)
        likeliest = [*new][: options.beam_size]
        if before.greedy[0]:
            greedy = likeliest[0]
        kept = scored(state.ids[0], state.total[0])
        steps.append(sorted(kept, key=kept.get, reverse=True))
        ends |= {ids: new[ids] for ids in likeliest if ids[-1] == END}
        scores |= new | kept
    both = {"greedy": greedy, "beam": max(ends, key=ends.get, default=greedy)}
    return steps, {
        name: {ids[:n]: scores[ids[:n]] for n in range(1, len(ids) + 1)}
        for name, ids in both.items()
    }


def draw_path(axes, side, place, path, *, color, wide):
    """Draws one path with its scores, with wide frames for hypotheses in ``wide``."""
    steps, rows = zip(*(place[ids] for ids in path), strict=True)
    axes.plot(steps, rows, color=color, lw=2.5, zorder=2.5)
    for ids, score in path.items():
        step, row = place[ids]
        [token] = side.tokens([ids[-1]])
        width = 6 if ids in wide else 2
        box = {"boxstyle": "round", "fc": "white", "ec": color, "lw": width}
        style = {"color": color, "size": 12, "ha": "center", "va": "center"}
        axes.text(step, row, f"{token}\n{number(score)}", bbox=box, **style)


def number(score):
    """A score with a minus sign instead of a hyphen."""
    return f"{score:.2f}".replace("-", "−")


def draw_beam(translator, text, most=10):
    """Draws the first steps of a beam search, with a dot for each kept hypothesis.

    Boxes have tokens and scores on two paths: greedy decoding's, and the beam's best.
    """
    side = translator.tokenizer.target
    steps, paths = beam_steps(translator, text)
    ends = {[*path][-1]: name for name, path in paths.items()}
    count = min(max(map(len, ends)), most)
    places = [*range(translator.options.beam_size)]
    bottom = len(places) + 0.3  # of the kept ones; below are the ends

    place = {}  # of each hypothesis: its step and its row
    for step, kept in enumerate(steps[:count], 1):
        place |= {ids: (step, row) for row, ids in enumerate(kept)}
    for row, ids in enumerate(sorted(ends, key=len)):
        if len(ids) <= count:
            place[ids] = len(ids), bottom + 0.95 * row

    size = {"figsize": (1.05 * count + 0.8, 4.6), "layout": "constrained"}
    figure, axes = plt.subplots(**size)
    axes.plot(*zip(*place.values(), strict=True), "o", color="0.8", ms=6)
    shared = {*paths["greedy"]} & {*paths["beam"]}  # red shows around the blue
    for name, color, wide in (("greedy", "C3", shared), ("beam", "C0", ())):
        path = {ids: score for ids, score in paths[name].items() if ids in place}
        draw_path(axes, side, place, path, color=color, wide=wide)
        for ids in path.keys() & ends.keys():
            step, row = place[ids]
            words = f"{name}: {side.decode([[*ids]])[0]}"
            style = {"color": color, "size": 13, "ha": "right", "va": "center"}
            axes.text(step - 0.4, row, words, **style)

    axes.set(xlim=(0.5, count + 0.5), ylim=(bottom + 1.45, -0.5), xlabel="step")
    axes.set_xticks(range(1, count + 1))
    names = ["1st", "2nd", "3rd", *(f"{n + 1}th" for n in places[3:])]
    axes.set_yticks([*places, bottom + 0.475], [*names[: len(places)], "finished"])
    axes.tick_params(length=0)
    axes.axhline(bottom - 0.6, color="0.8", lw=1, ls=":")
    axes.spines[:].set_visible(False)
    low, high = (number([*path.values()][-1]) for path in paths.values())
    title = f"Greedy decoding ends with a score of {low}, the beam with {high}"
    figure.suptitle(title)
    axes.set_title(f"“{text}”", size=12, color="0.4")
    plt.show()
