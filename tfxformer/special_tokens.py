"""The ids of the special tokens, the same in every vocabulary.

The tokenizer writes them, the masks hide padding by its id, and decoding begins and
ends with the other two.
"""

PAD_ID = 0  # fills up the shorter sentences of a batch
UNK_ID = 1  # stands for what a vocabulary cannot spell
START_ID = 2  # begins each target
END_ID = 3  # ends each source and each target
