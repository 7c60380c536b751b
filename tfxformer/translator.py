"""Strings to strings."""

from pathlib import Path

import tensorflow as tf

# Its ops are in any exported translator; importing it registers them.
import tensorflow_text  # noqa: F401

from tfxformer import sentences
from tfxformer.decoding import DecodingOptions, decode_steps
from tfxformer.errors import UserError
from tfxformer.exporting.metadata import read_metadata
from tfxformer.exporting.repository import check_checkpoint, find_model
from tfxformer.exporting.signatures import completion, signatures
from tfxformer.quiet import nothing_collected
from tfxformer.run import Run
from tfxformer.signature_translator import SignatureTranslator, as_text, as_texts
from tfxformer.tokenizer import encode_source


class Translator(SignatureTranslator):
    r"""Translates text.

    Args:
        tokenizer: a `Tokenizer`.
        transformer: the `Transformer` that was trained with it.
        options: `DecodingOptions`; None decodes greedily.
        xla: compile decoding with XLA: faster once it is compiled, which takes
            seconds for each of a few shapes.

    Raises:
        UserError: when they do not belong together.

    Example:
        >>> from tfxformer import Tokenizer, Transformer
        >>> tokenizer = Tokenizer.train(["um gato", "a cat"] * 50, vocab_size=300)
        >>> size = tokenizer.vocab_size
        >>> transformer = Transformer(
        ...     num_layers=1, d_model=16, num_heads=2, dff=32, max_length=32,
        ...     input_vocab_size=size, target_vocab_size=size,
        ... )
        >>> translator = Translator(tokenizer, transformer)
        >>> len(translator(["um gato", ""])), translator("")
        (2, '')
        >>> translator("\n\n")  # a document's blank lines stay
        '\n\n'
        >>> translator.score(["um gato"], ["a cat"]).shape
        (1,)
    """

    def __init__(self, tokenizer, transformer, options=None, xla=False):
        if tokenizer.vocab_size != transformer.target_vocab_size:
            raise UserError(
                f"the tokenizer has {tokenizer.vocab_size} pieces, the model "
                f"{transformer.target_vocab_size}: they do not belong together"
            )
        if not transformer.built:
            transformer.build()
        self.tokenizer = tokenizer
        self.transformer = transformer
        self.max_length = transformer.max_length
        self.options = options or DecodingOptions()
        self.xla = xla
        self.signatures = signatures(tokenizer, transformer, self.options, xla)
        self._complete = completion(tokenizer, transformer, self.options)

    @classmethod
    def load(cls, path=None, checkpoint="best", options=None, xla=False):
        """A translator from a run folder, or from an exported SavedModel.

        Args:
            path: a run folder, or an exported model: the folder of one version, or
                that of all, whose newest is taken; None for the model that comes with
                the package.
            checkpoint: "best" or "last", for a run folder.
            options: `DecodingOptions`, for a run folder.
            xla: compile decoding with XLA, for a run folder.

        Returns:
            A `Translator`. From a SavedModel it has no ``tokenizer`` and no
            ``transformer``, only what the signatures give.

        Raises:
            UserError: when there is nothing at the path that translates, or options
                are given for a SavedModel, in which they were chosen at its export.
        """
        path = Path(find_model(path))
        if not (path / "saved_model.pb").exists():
            return cls(*Run.open(path).load(checkpoint), options, xla)
        check_checkpoint(path, checkpoint)
        if xla or (options or DecodingOptions()) != DecodingOptions():
            raise UserError(
                f"{path}: how an exported model decodes was chosen at its export; "
                "give a run folder, or export again with these options"
            )
        return cls._from_saved_model(path)

    @classmethod
    def _from_saved_model(cls, path):
        metadata = read_metadata(path)
        if metadata is None or "max_length" not in metadata["model"]:
            raise UserError(f"{path}: a SavedModel, but none that tfxformer exported")
        try:
            with nothing_collected():
                loaded = tf.saved_model.load(str(path))
        except (OSError, ValueError, tf.errors.OpError) as error:
            reason = str(error).strip().splitlines()[0]
            raise UserError(f"{path}: damaged: {reason}") from None
        translator = cls.__new__(cls)
        translator.tokenizer = translator.transformer = translator.options = None
        translator.max_length = metadata["model"]["max_length"]
        translator.signatures = dict(loaded.signatures)
        translator._loaded = loaded  # it owns the variables
        return translator

    def complete(self, texts, prefixes):
        """Translations that begin as they are told to.

        Args:
            texts: a list of strings, each read as one sentence.
            prefixes: as many strings: what each translation begins with; an empty
                one leaves it free.

        Returns:
            A list of strings.

        Raises:
            TypeError: for anything but strings.
            UserError: for an exported model, which takes no prefixes.
        """
        if self.transformer is None:
            raise UserError("an exported model takes no prefixes: give a run folder")
        texts, prefixes = as_texts(texts), as_texts(prefixes, name="prefix")
        if len(texts) != len(prefixes):
            raise ValueError(f"{len(prefixes)} prefixes for {len(texts)} texts")
        if not texts:
            return []
        found = self._complete(tf.constant(texts), tf.constant(prefixes))
        return [text.decode() for text in found["translation"].numpy()]

    def stream(self, text):
        r"""Translates while one watches: what there is after each token.

        As a call of the translator reads it: a text of any length, its sentences one
        after the other. It does not search with a beam, whose hypotheses overtake one
        another: with options of a beam this decodes greedily.

        Args:
            text: a string; bytes are taken as UTF-8.

        Yields:
            The translation so far, a string, after each token; and at last the whole,
            also where there is nothing to translate.

        Raises:
            TypeError: for anything but a string.
            UserError: for an exported model that was not opened with its Keras model
                (`reopen.load_translator`).

        Example:
            >>> from tfxformer import Tokenizer, Transformer
            >>> tokenizer = Tokenizer.train(["um gato", "a cat"] * 50, vocab_size=300)
            >>> size = tokenizer.vocab_size
            >>> transformer = Transformer(
            ...     num_layers=1, d_model=16, num_heads=2, dff=32, max_length=32,
            ...     input_vocab_size=size, target_vocab_size=size,
            ... )
            >>> translator = Translator(tokenizer, transformer)
            >>> *_, whole = translator.stream("um gato")
            >>> whole == translator("um gato"), [*translator.stream("\n")]
            (True, ['\n'])
        """
        if self.transformer is None:
            raise UserError(
                "an exported model gives whole translations: to watch one, open it "
                "with tfxformer.exporting.reopen.load_translator, or give a run folder"
            )
        pieces = self.parts(text)
        done = pieces[0]
        for place in range(1, len(pieces), 2):
            so_far = ""
            for so_far in self._stream_sentence(pieces[place]):
                # A character of several tokens is not seen before it is whole.
                yield done + so_far.rstrip("\ufffd")
            space = pieces[place + 1]
            # Where nothing parts two sentences, as `translate` does.
            done += so_far + (space if place + 2 == len(pieces) else space or " ")
        yield done

    def parts(self, text):
        """What the model reads of a text, one at a time, and what stands between.

        Args:
            text: a string; bytes are taken as UTF-8.

        Returns:
            A list of strings: white space at even places, the first and the last among
            them, and at odd ones sentences, or parts of those that are too long.

        Example:
            >>> from tfxformer import Tokenizer, Transformer
            >>> tokenizer = Tokenizer.train(["um gato", "a cat"] * 50, vocab_size=300)
            >>> transformer = Transformer(
            ...     num_layers=1, d_model=16, num_heads=2, dff=32, max_length=32,
            ...     input_vocab_size=tokenizer.vocab_size,
            ...     target_vocab_size=tokenizer.vocab_size,
            ... )
            >>> Translator(tokenizer, transformer).parts("Um gato. Um cão.")
            ['', 'Um gato.', ' ', 'Um cão.', '']
        """
        (pieces,) = self._fit([sentences.split_sentences(as_text(text))], first=1)
        return pieces

    def _stream_sentence(self, text):
        options = self.options.updated(n_best=1)
        if options.beam_size > 1:
            options = options.updated(
                beam_size=1, length_penalty=None, coverage_penalty=0.0
            )
        longest = self.max_length - 1
        source = encode_source(self.tokenizer, tf.constant([text]), longest=longest)
        for ids in decode_steps(self.transformer, source, options):
            yield self.tokenizer.detokenize(ids[:, 0])[0].numpy().decode()

    def answers(self, signature, inputs):
        """As `SignatureTranslator.answers` says.

        Args:
            signature: its name, such as "translate".
            inputs: arrays by input name.

        Returns:
            NumPy arrays by output name; strings are bytes.
        """
        inputs = {name: tf.constant(value) for name, value in inputs.items()}
        outputs = self.signatures[signature](**inputs)
        return {name: value.numpy() for name, value in outputs.items()}
