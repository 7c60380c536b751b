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
    """What a translator's beam search keeps and finishes at each step.

    Returns a list of ``(kept, finished)``, and the hypothesis of greedy decoding. Each
    is a dictionary of token ids and scores, the best first.
    """

    def scored(ids, totals):
        rows = [tuple(map(int, row)) for row in np.array(ids)]
        return dict(zip(rows, np.array(totals) / np.shape(ids)[1], strict=True))

    model, options = translator.folded(), translator.options
    source = encode_source(translator.tokenizer, tf.constant([text]))
    limit = length_limit(source, options, model.max_length)
    sources = Sources(source, limit, (), model.encode(source))
    search = TracedSearch(DecoderStep(model, options.beam_size, options), options)
    state, steps, greedy = search.start(sources), [], {}
    while state.going[0]:
        before, state = state, search.step(tf.constant(len(steps)), sources, state)
        parent, token, total = (x[0] for x in search.candidates)
        longer = tf.concat([tf.gather(before.ids[0], parent), token[:, None]], axis=1)
        new = scored(longer, total)
        if before.greedy[0]:
            greedy = dict([*new.items()][:1])
        likeliest = [*new][: options.beam_size]
        finished = {ids: new[ids] for ids in likeliest if ids[-1] == END}
        kept = sorted(scored(state.ids[0], state.total[0]).items(), key=lambda x: -x[1])
        steps.append((dict(kept), finished))
    return steps, greedy


def draw_beam(translator, text, most=10):
    """Draws the first steps of a beam search, and says where greedy decoding leaves it.

    Of the finished hypotheses, it draws the best one, and greedy decoding's.
    """

    def number(score):
        return f"{score:.2f}".replace("-", "−")

    side = translator.tokenizer.target
    steps, greedy = beam_steps(translator, text)
    [(slow, low)] = greedy.items()
    ends = {ids: score for _, finished in steps for ids, score in finished.items()}
    best = max(ends, key=ends.get, default=slow)
    found, greedily = (side.decode([[*path]])[0] for path in (best, slow))
    bottom = translator.options.beam_size + 0.3
    paths = {best: ("C0", f"beam: {found}", bottom + 0.95)}
    paths |= {slow: ("C3", f"greedy: {greedily}", bottom)}
    count = min(max(len(best), len(slow)), most)
    size = {"figsize": (1.05 * count + 0.8, 4.3), "layout": "constrained"}
    figure, axes = plt.subplots(**size)
    row_of = {}
    for step, (kept, finished) in enumerate(steps[:count], 1):
        rows = {ids: row for row, ids in enumerate(kept)}
        rows |= {ids: paths[ids][2] for ids in finished if ids in paths}
        for ids, row in rows.items():
            on = [style for path, style in paths.items() if path[:step] == ids]
            color, words, _ = on[0] if on else ("0.5", "", 0)
            kind = {"va": "center", "color": color, "zorder": 3}
            box = {"boxstyle": "round", "fc": "white", "ec": color, "lw": 1 + len(on)}
            [token] = side.tokens([ids[-1]])
            token += f"\n{number((kept | finished)[ids])}"
            axes.text(step, row, token, ha="center", size=11, bbox=box, **kind)
            if step > 1:
                line = {"color": color, "lw": 2.5 if on else 1, "zorder": len(on)}
                axes.plot([step - 1, step], [row_of[ids[:-1]], row], **line)
            if row >= bottom:  # the finished text, where there is room
                left = step > count / 2
                place = step - 0.35 if left else step + 0.35
                at = {"ha": "right" if left else "left", "size": 12}
                axes.text(place, row, words, **at, **kind)
        row_of |= rows
    axes.set(xlim=(0.5, count + 0.5), ylim=(bottom + 1.45, -0.5))
    axes.set_xlabel("step (below each token: the score of its hypothesis so far)")
    axes.set_xticks(range(1, count + 1))
    places = [*range(translator.options.beam_size)]
    names = ["1st", "2nd", "3rd", *(f"{n + 1}th" for n in places[3:])]
    axes.set_yticks([*places, bottom + 0.475], [*names[: len(places)], "finished"])
    axes.tick_params(length=0)
    axes.axhline(bottom - 0.6, color="0.8", lw=1, ls=":")
    axes.spines[:].set_visible(False)
    title = "Greedy decoding and the beam end with the same translation"
    said = f"{title}: “{found}”"
    both = zip(best, slow, strict=False)
    apart = [n for n, (one, other) in enumerate(both, 1) if one != other][:1]
    for step in apart:
        scores = steps[step - 1][0] | steps[step - 1][1]
        first, second = (number(scores[path[:step]]) for path in (slow, best))
        one, other = side.tokens([slow[step - 1], best[step - 1]])
        title = f"Greedy decoding takes the likelier token at step {step}"
        title += ", but ends with the lower score"
        said = f"""
For “{text}”, greedy decoding takes “{one}” at step {step}: with it, the score
is {first}, with “{other}” {second}. Greedy decoding cannot go back, so it ends with
“{greedily}” and a score of {number(low)}. The beam keeps both tokens and ends with
“{found}” and {number(ends[best])}. (“\u2581” begins a word.)
"""
    figure.suptitle(title)
    axes.set_title(f"“{text}”", size=12, color="0.4")
    plt.show()
    return said
