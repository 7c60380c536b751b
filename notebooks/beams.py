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


def draw_beam(translator, text, most=10):
    """Draws the first steps of a beam search: the newest token of each hypothesis.

    Numbers are the scores on two paths: greedy decoding's, and the beam's best.
    """
    side = translator.tokenizer.target
    steps, paths = beam_steps(translator, text)
    place = {
        ids: (n, row) for n, kept in enumerate(steps, 1) for row, ids in enumerate(kept)
    }
    bottom = translator.options.beam_size + 0.3  # of the kept ones; below are the ends
    ends = {[*path][-1]: name for name, path in paths.items()}
    for row, ids in enumerate(sorted(ends, key=len)):
        place[ids] = len(ids), bottom + 0.95 * row
    count = min(max(map(len, ends)), most)
    place = {ids: at for ids, at in place.items() if at[0] <= count}
    size = {"figsize": (1.05 * count + 0.8, 4.6), "layout": "constrained"}
    figure, axes = plt.subplots(**size)
    middle = {"ha": "center", "va": "center"}
    shared = {*paths["greedy"]} & {*paths["beam"]}  # red shows around the blue
    for ids, at in place.items():  # the other hypotheses, in grey
        axes.plot(*zip(place.get(ids[:-1], at), at, strict=True), color="0.87", lw=1)
        box = {"fc": "white", "ec": "none", "pad": 1}
        [token] = side.tokens([ids[-1]])
        axes.text(*at, token, color="0.6", size=10, bbox=box, **middle)
    for (name, path), color in zip(paths.items(), ("C3", "C0"), strict=True):
        path = {ids: score for ids, score in path.items() if ids in place}
        axes.plot(
            *zip(*map(place.get, path), strict=True), color=color, lw=2.5, zorder=2.5
        )
        for ids, score in path.items():
            width = 6 if name == "greedy" and ids in shared else 2
            box = {"boxstyle": "round", "fc": "white", "ec": color, "lw": width}
            label = side.tokens([ids[-1]])[0] + "\n" + f"{score:.2f}".replace("-", "−")
            axes.text(*place[ids], label, color=color, size=12, bbox=box, **middle)
            if ids in ends:
                step, row = place[ids]
                words = f"{name}: {side.decode([[*ids]])[0]}"
                at = {"ha": "right", "va": "center", "size": 13}
                axes.text(step - 0.4, row, words, color=color, **at)
    axes.set(xlim=(0.5, count + 0.5), ylim=(bottom + 1.45, -0.5), xlabel="step")
    axes.set_xticks(range(1, count + 1))
    places = [*range(translator.options.beam_size)]
    names = ["1st", "2nd", "3rd", *(f"{n + 1}th" for n in places[3:])]
    axes.set_yticks([*places, bottom + 0.475], [*names[: len(places)], "finished"])
    axes.tick_params(length=0)
    axes.axhline(bottom - 0.6, color="0.8", lw=1, ls=":")
    axes.spines[:].set_visible(False)
    low, high = (f"{[*path.values()][-1]:.2f}" for path in paths.values())
    title = f"Greedy decoding ends with a score of {low}, the beam with {high}"
    figure.suptitle(title.replace("-", "−"))
    axes.set_title(f"“{text}”", size=12, color="0.4")
    plt.show()
